// Command icons draws the pictures of this folder: the program's icon, and a sheet with every state of the tray on a light and on a dark panel, in colour and without.
//
//	go run ./assets/icons assets/icons
package main

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"

	"singlepass.dev/ui/icon"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: icons FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "icons:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	app, err := icon.Draw(icon.Locked, 0, 128)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(folder, "singlepass.png"), app); err != nil {
		return err
	}
	sheet, err := states()
	if err != nil {
		return err
	}
	return write(filepath.Join(folder, "states.png"), sheet)
}

// states is a sheet of all icons, at a panel's size and twice that, on four panels.
func states() (image.Image, error) {
	type shown struct {
		kind  icon.Kind
		count int
	}
	list := []shown{{icon.Down, 0}, {icon.Locked, 0}, {icon.Unlocked, 0}, {icon.Waiting, 1}, {icon.Waiting, 4}, {icon.Waiting, 12}, {icon.Unknown, 0}, {icon.Quarantine, 0}}
	const cell, row = 72, 80
	panels := []struct {
		back color.NRGBA
		grey bool
	}{{color.NRGBA{0xf2, 0xf2, 0xf2, 0xff}, false}, {color.NRGBA{0x20, 0x22, 0x26, 0xff}, false}, {color.NRGBA{0xf2, 0xf2, 0xf2, 0xff}, true}, {color.NRGBA{0x20, 0x22, 0x26, 0xff}, true}}
	m := image.NewNRGBA(image.Rect(0, 0, cell*len(list)*3/2, row*len(panels)))
	for y, p := range panels {
		draw.Draw(m, image.Rect(0, y*row, m.Rect.Dx(), (y+1)*row), image.NewUniform(p.back), image.Point{}, draw.Src)
		x := 8
		for _, s := range list {
			for _, size := range []int{22, 64} {
				i, err := icon.Draw(s.kind, s.count, size)
				if err != nil {
					return nil, err
				}
				at := image.Pt(x, y*row+(row-size)/2)
				draw.Draw(m, image.Rectangle{at, at.Add(image.Pt(size, size))}, i, image.Point{}, draw.Over)
				x += size + 11
			}
		}
		if p.grey {
			band := m.SubImage(image.Rect(0, y*row, m.Rect.Dx(), (y+1)*row)).(*image.NRGBA)
			for by := band.Rect.Min.Y; by < band.Rect.Max.Y; by++ {
				for bx := band.Rect.Min.X; bx < band.Rect.Max.X; bx++ {
					band.Set(bx, by, color.GrayModel.Convert(band.At(bx, by)))
				}
			}
		}
	}
	return m, nil
}

func write(path string, m image.Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := png.Encode(f, m); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
