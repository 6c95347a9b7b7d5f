package look

import (
	"fmt"
	"image/color"
	"strings"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/theme"
)

// Shape is a small picture that can be told from the others without colour.
type Shape string

// The shapes.
const (
	ShapeWaiting  Shape = "waiting"  // an hourglass: somebody has to answer
	ShapeReady    Shape = "ready"    // a ring with a dot: allowed, not sent
	ShapeSent     Shape = "sent"     // an arrow that leaves: under way
	ShapeUnknown  Shape = "unknown"  // a diamond with a question mark
	ShapeStored   Shape = "stored"   // a tray with a tick: the result is here, nobody has it
	ShapeDone     Shape = "done"     // a disc with a tick
	ShapeFailed   Shape = "failed"   // a triangle: the target answered with an error
	ShapeRefused  Shape = "refused"  // an octagon with a cross
	ShapeOver     Shape = "over"     // a clock: nobody answered in time
	ShapeBack     Shape = "back"     // an arrow that turns back
	ShapeNothing  Shape = "nothing"  // a ring struck through: nothing was sent or done
	ShapeWarning  Shape = "warning"  // the triangle, for warnings
	ShapeInfo     Shape = "info"     // a ring with an i
	ShapeAgain    Shape = "again"    // two arrows in a circle: it came again
	ShapeKey      Shape = "key"      //
	ShapeLock     Shape = "lock"     //
	ShapeOpenLock Shape = "openlock" //
	ShapeProgram  Shape = "program"  // a window
)

const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24" viewBox="0 0 24 24">`

func stroke(d string) string {
	return `<path d="` + d + `" fill="none" stroke="#000000" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"/>`
}

func fill(d string) string { return `<path d="` + d + `" fill="#000000" fill-rule="evenodd"/>` }

const ring = "M12 3a9 9 0 1 0 0 18a9 9 0 1 0 0 -18z"

var shapes = map[Shape]string{
	ShapeWaiting:  stroke("M7 3h10M7 21h10M8 3v4l4 5l4 -5v-4M8 21v-4l4 -5l4 5v4"),
	ShapeReady:    stroke(ring) + fill("M12 8.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 1 0 0 -7z"),
	ShapeSent:     stroke("M4 12h15M13 6l6 6l-6 6"),
	ShapeUnknown:  stroke("M12 2.5l9.5 9.5l-9.5 9.5l-9.5 -9.5z") + stroke("M9.8 10c0 -3 4.6 -3 4.6 -0.2c0 1.8 -2.4 1.8 -2.4 3.6") + fill("M12 15.2a1.1 1.1 0 1 0 0 2.2a1.1 1.1 0 1 0 0 -2.2z"),
	ShapeStored:   stroke("M3 14v5h18v-5M3 14h5l1.5 2h5l1.5 -2h5") + stroke("M8 7l3 3l6 -6"),
	ShapeDone:     stroke(ring) + stroke("M7.5 12.5l3 3l6 -6.5"),
	ShapeFailed:   stroke("M12 3.5l9.5 16.5h-19z") + stroke("M12 10v4.5") + fill("M12 16.2a1.1 1.1 0 1 0 0 2.2a1.1 1.1 0 1 0 0 -2.2z"),
	ShapeRefused:  stroke("M8 3h8l5 5v8l-5 5h-8l-5 -5v-8z") + stroke("M9 9l6 6M15 9l-6 6"),
	ShapeOver:     stroke(ring) + stroke("M12 7v5l3.5 2.5"),
	ShapeBack:     stroke("M9 6l-5 5l5 5M4 11h10a5 5 0 0 1 0 10h-3"),
	ShapeNothing:  stroke(ring) + stroke("M6 6l12 12"),
	ShapeWarning:  stroke("M12 3.5l9.5 16.5h-19z") + stroke("M12 10v4.5") + fill("M12 16.2a1.1 1.1 0 1 0 0 2.2a1.1 1.1 0 1 0 0 -2.2z"),
	ShapeInfo:     stroke(ring) + stroke("M12 11.5v5") + fill("M12 6.8a1.2 1.2 0 1 0 0 2.4a1.2 1.2 0 1 0 0 -2.4z"),
	ShapeAgain:    stroke("M4 12a8 8 0 0 1 14 -5.3M20 12a8 8 0 0 1 -14 5.3M18.5 2.5v4.5h-4.5M5.5 21.5v-4.5h4.5"),
	ShapeKey:      stroke("M8 11a4 4 0 1 0 0 8a4 4 0 1 0 0 -8zM11 12l8 -8M15 8l3 3M18 5l2 2"),
	ShapeLock:     stroke("M5 11h14v10h-14zM8 11v-4a4 4 0 0 1 8 0v4"),
	ShapeOpenLock: stroke("M5 11h14v10h-14zM8 11v-5a4 4 0 0 1 7.5 -2"),
	ShapeProgram:  stroke("M3 4h18v16h-18zM3 9h18"),
}

// tinted is a shape in a colour of the theme that is there when it is drawn. Fyne's own themed resources tint what is filled, and these are lines.
type tinted struct {
	shape Shape
	color fyne.ThemeColorName
}

func (t tinted) hex() string {
	c := color.NRGBAModel.Convert(theme.Color(t.color)).(color.NRGBA)
	return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
}

// Name implements fyne.Resource. Fyne keeps pictures by it, so the colour is a part of it.
func (t tinted) Name() string { return "singlepass-" + string(t.shape) + "-" + t.hex()[1:] + ".svg" }

// Content implements fyne.Resource.
func (t tinted) Content() []byte {
	return []byte(svgHead + strings.ReplaceAll(shapes[t.shape], "#000000", t.hex()) + "</svg>")
}

// Resource is the shape as a picture that takes a colour of the theme.
func (s Shape) Resource(c fyne.ThemeColorName) fyne.Resource { return tinted{s, c} }

func (s Shape) icon(c fyne.ThemeColorName) *canvas.Image {
	i := canvas.NewImageFromResource(s.Resource(c))
	i.FillMode = canvas.ImageFillContain
	i.SetMinSize(fyne.NewSquareSize(iconSize))
	return i
}

// Marked is text with a shape before it, both in the tone's colour.
func Marked(t Tone, s Shape, text string) fyne.CanvasObject {
	c, _ := t.colors()
	if t == Calm {
		c = theme.ColorNameForeground
	}
	return leading(s.icon(c), Plain(text, Style{Color: c, Bold: true}))
}

// Named is a shape and a name of one line, larger than the text.
func Named(t Tone, s Shape, text string) fyne.CanvasObject {
	c, _ := t.colors()
	return leading(s.icon(c), Label(text, Style{Bold: true, Size: theme.SizeNameSubHeadingText}))
}

// Badge is a shape and a word of one line.
func Badge(t Tone, s Shape, text string) fyne.CanvasObject {
	c, _ := t.colors()
	return leading(s.icon(c), Label(text, Style{Color: c, Bold: true}))
}
