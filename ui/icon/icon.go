// Package icon draws the tray's icons: one shape for each thing that a glance has to tell.
//
// Promises: every state has a shape of its own, so that it can be told without colour; every shape has a light rim around a darker body, so that it stands out on a dark panel
// and on a light one. The same input gives the same bytes.
//
// Shapes are signed distances (negative inside) on a square of side 2 around the origin, y downwards; a pixel's coverage is the distance in pixels, cut to one. See I. Quilez,
// "2D distance functions", for the formulas.
package icon

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"strconv"
)

// Kind is what the icon tells.
type Kind string

// The kinds.
const (
	Down       Kind = "down"       // no daemon: an empty ring, crossed out
	Waiting    Kind = "waiting"    // cards wait: a round badge with their number
	Quarantine Kind = "quarantine" // the journal does not verify: a warning triangle
	Unknown    Kind = "unknown"    // outcomes to settle: a diamond with a question mark
	Locked     Kind = "locked"     // a closed padlock
	Unlocked   Kind = "unlocked"   // an open padlock
)

// Kinds lists them all.
func Kinds() []Kind { return []Kind{Down, Waiting, Quarantine, Unknown, Locked, Unlocked} }

type point struct{ x, y float64 }

// shape is a signed distance.
type shape func(point) float64

// layer is one flat colour in one shape.
type layer struct {
	in   shape
	fill color.NRGBA
}

var (
	rim   = color.NRGBA{0xff, 0xff, 0xff, 0xff}
	ink   = color.NRGBA{0xff, 0xff, 0xff, 0xff}
	grey  = color.NRGBA{0x5a, 0x64, 0x70, 0xff}
	green = color.NRGBA{0x1f, 0x7a, 0x4d, 0xff}
	blue  = color.NRGBA{0x1d, 0x5f, 0xc4, 0xff}
	plum  = color.NRGBA{0x8a, 0x3a, 0xa8, 0xff}
	red   = color.NRGBA{0xb8, 0x22, 0x22, 0xff}
)

const rimWidth = 0.11

// layers returns what is drawn, from below.
func layers(k Kind, count int) ([]layer, error) {
	body := func(s shape, fill color.NRGBA, on ...layer) []layer {
		return append([]layer{{grown(s, rimWidth), rim}, {s, fill}}, on...)
	}
	switch k {
	case Down:
		ring := outline(circle(point{}, 0.62), 0.14)
		bar := segment(point{-0.44, 0.44}, point{0.44, -0.44}, 0.13)
		return body(either(ring, bar), grey), nil
	case Waiting:
		return body(circle(point{}, 0.86), blue, layer{number(count), ink}), nil
	case Quarantine:
		triangle := rounded(polygon(point{0, -0.68}, point{0.74, 0.62}, point{-0.74, 0.62}), 0.14)
		return body(triangle, red, layer{shifted(exclamation(), 0, 0.16, 0.82), ink}), nil
	case Unknown:
		diamond := rounded(polygon(point{0, -0.78}, point{0.78, 0}, point{0, 0.78}, point{-0.78, 0}), 0.08)
		return body(diamond, plum, layer{shifted(question(), 0, 0, 0.8), ink}), nil
	case Locked, Unlocked:
		chest := rounded(box(point{0, 0.36}, 0.56, 0.38), 0.10)
		hole := either(circle(point{0, 0.27}, 0.13), segment(point{0, 0.30}, point{0, 0.52}, 0.06))
		if k == Locked {
			return body(either(chest, shackle(0, false)), grey, layer{hole, ink}), nil
		}
		// Open twice over: the shackle hangs to the side, and the chest is hollow.
		hollow := rounded(box(point{-0.18, 0.36}, 0.40, 0.22), 0.08)
		chest = shifted(chest, -0.18, 0, 1)
		return body(either(chest, shackle(0.40, true)), green, layer{hollow, ink}), nil
	}
	return nil, fmt.Errorf("drawing an icon: there is no kind %q", k)
}

// shackle is a padlock's bow; an open one has only its left foot in the chest.
func shackle(x float64, open bool) shape {
	const thick = 0.115
	arc := func(p point) float64 {
		q := point{p.x - x, p.y + 0.30}
		if q.y > 0 {
			return math.Min(math.Hypot(q.x-0.36, q.y), math.Hypot(q.x+0.36, q.y)) - thick
		}
		return math.Abs(math.Hypot(q.x, q.y)-0.36) - thick
	}
	left := segment(point{x - 0.36, -0.30}, point{x - 0.36, 0.1}, thick)
	right := segment(point{x + 0.36, -0.30}, point{x + 0.36, 0.1}, thick)
	if open {
		right = segment(point{x + 0.36, -0.30}, point{x + 0.36, -0.18}, thick)
	}
	return either(arc, either(left, right))
}

// number is the count in digits; past nine it is "9+".
func number(n int) shape {
	if n < 1 {
		n = 1
	}
	if n <= 9 {
		return shifted(digit(n), 0, 0, 0.92)
	}
	plus := either(segment(point{-0.22, 0}, point{0.22, 0}, 0.11), segment(point{0, -0.22}, point{0, 0.22}, 0.11))
	return either(shifted(digit(9), -0.24, 0, 0.78), shifted(plus, 0.42, 0, 0.95))
}

// PNG draws an icon as a square of size pixels.
func PNG(k Kind, count, size int) ([]byte, error) {
	m, err := Draw(k, count, size)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		return nil, fmt.Errorf("writing icon %s: %w", name(k, count), err)
	}
	return b.Bytes(), nil
}

func name(k Kind, count int) string {
	if k == Waiting {
		return string(k) + "-" + strconv.Itoa(count)
	}
	return string(k)
}

// Draw draws an icon as a square of size pixels.
func Draw(k Kind, count, size int) (*image.NRGBA, error) {
	if size < 8 || size > 1024 {
		return nil, fmt.Errorf("drawing an icon: %d pixels are not between 8 and 1024", size)
	}
	list, err := layers(k, count)
	if err != nil {
		return nil, err
	}
	m := image.NewNRGBA(image.Rect(0, 0, size, size))
	half := float64(size) / 2
	for y := range size {
		for x := range size {
			p := point{(float64(x)+0.5)/half - 1, (float64(y)+0.5)/half - 1}
			var at color.NRGBA
			for _, l := range list {
				at = over(at, l.fill, min(max(0.5-l.in(p)*half, 0), 1))
			}
			m.SetNRGBA(x, y, at)
		}
	}
	return m, nil
}

// over lays a colour over what is there (Porter and Duff's "over").
func over(below, above color.NRGBA, coverage float64) color.NRGBA {
	a := coverage * float64(above.A) / 255
	b := float64(below.A) / 255 * (1 - a)
	if a+b == 0 {
		return color.NRGBA{}
	}
	mix := func(x, y uint8) uint8 { return uint8(math.Round((float64(x)*a + float64(y)*b) / (a + b))) }
	return color.NRGBA{mix(above.R, below.R), mix(above.G, below.G), mix(above.B, below.B), uint8(math.Round((a + b) * 255))}
}
