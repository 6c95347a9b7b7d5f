package icon

import "math"

func circle(c point, r float64) shape {
	return func(p point) float64 { return math.Hypot(p.x-c.x, p.y-c.y) - r }
}

// box is a rectangle around c with half sides w and h.
func box(c point, w, h float64) shape {
	return func(p point) float64 {
		dx, dy := math.Abs(p.x-c.x)-w, math.Abs(p.y-c.y)-h
		return math.Hypot(max(dx, 0), max(dy, 0)) + min(max(dx, dy), 0)
	}
}

// segment is a line with round ends.
func segment(a, b point, thick float64) shape {
	return func(p point) float64 {
		dx, dy := b.x-a.x, b.y-a.y
		t := min(max(((p.x-a.x)*dx+(p.y-a.y)*dy)/(dx*dx+dy*dy), 0), 1)
		return math.Hypot(p.x-a.x-t*dx, p.y-a.y-t*dy) - thick
	}
}

func polygon(corners ...point) shape {
	return func(p point) float64 {
		nearest, sign := math.Inf(1), 1.0
		for i, a := range corners {
			b := corners[(i+len(corners)-1)%len(corners)]
			dx, dy := b.x-a.x, b.y-a.y
			wx, wy := p.x-a.x, p.y-a.y
			t := min(max((wx*dx+wy*dy)/(dx*dx+dy*dy), 0), 1)
			nearest = min(nearest, math.Hypot(wx-t*dx, wy-t*dy))
			above, below, left := p.y >= a.y, p.y < b.y, dx*wy > dy*wx
			if above && below && left || !above && !below && !left {
				sign = -sign
			}
		}
		return sign * nearest
	}
}

func grown(s shape, by float64) shape { return func(p point) float64 { return s(p) - by } }

// rounded gives a shape round corners on the outside.
func rounded(s shape, by float64) shape { return grown(s, by) }

// outline keeps the border of a shape.
func outline(s shape, thick float64) shape {
	return func(p point) float64 { return math.Abs(s(p)) - thick }
}

func either(a, b shape) shape { return func(p point) float64 { return min(a(p), b(p)) } }

// shifted moves a shape and scales it.
func shifted(s shape, x, y, scale float64) shape {
	return func(p point) float64 { return s(point{(p.x - x) / scale, (p.y - y) / scale}) * scale }
}

// strokes joins lines and arcs of one width, which is how the figures are drawn.
type strokes struct {
	parts []shape
	thick float64
}

func (s *strokes) line(points ...float64) *strokes {
	for i := 0; i+3 < len(points); i += 2 {
		s.parts = append(s.parts, segment(point{points[i], points[i+1]}, point{points[i+2], points[i+3]}, s.thick))
	}
	return s
}

// arc goes around a centre from one angle to another, in degrees; 0 is to the right and 90 downwards.
func (s *strokes) arc(x, y, r, from, to float64) *strokes {
	const step = 10
	at := func(degrees float64) point {
		sin, cos := math.Sincos(degrees * math.Pi / 180)
		return point{x + r*cos, y + r*sin}
	}
	for a := from; a < to; a += step {
		s.parts = append(s.parts, segment(at(a), at(min(a+step, to)), s.thick))
	}
	return s
}

func (s *strokes) shape() shape {
	return func(p point) float64 {
		d := math.Inf(1)
		for _, part := range s.parts {
			d = min(d, part(p))
		}
		return d
	}
}

func pen() *strokes { return &strokes{thick: 0.12} }

// digit is one of 1 to 9, about 0.7 wide and 1.1 high.
func digit(n int) shape {
	s := pen()
	switch n {
	case 1:
		s.line(-0.22, -0.30, 0.06, -0.52, 0.06, 0.52)
	case 2:
		s.arc(0, -0.23, 0.29, 180, 385).line(0.263, -0.107, -0.30, 0.52, 0.32, 0.52)
	case 3:
		s.arc(-0.02, -0.26, 0.26, 200, 450).arc(-0.02, 0.25, 0.27, 270, 520)
	case 4:
		s.line(0.14, 0.52, 0.14, -0.52, -0.34, 0.22, 0.34, 0.22)
	case 5:
		s.line(0.28, -0.52, -0.22, -0.52, -0.26, -0.06).arc(-0.02, 0.20, 0.31, 230, 505)
	case 6:
		s.arc(0, 0.22, 0.30, 0, 360).line(0.16, -0.52, -0.26, 0.08)
	case 7:
		s.line(-0.30, -0.52, 0.30, -0.52, -0.08, 0.52)
	case 8:
		s.arc(0, -0.27, 0.24, 0, 360).arc(0, 0.25, 0.28, 0, 360)
	default:
		s.arc(0, -0.22, 0.30, 0, 360).line(0.26, -0.08, -0.16, 0.52)
	}
	return s.shape()
}

func question() shape {
	s := pen().arc(0, -0.24, 0.28, 180, 400).line(0.215, -0.06, 0, 0.14, 0, 0.20)
	s.parts = append(s.parts, circle(point{0, 0.50}, 0.14))
	return s.shape()
}

func exclamation() shape {
	s := pen().line(0, -0.46, 0, 0.12)
	s.parts = append(s.parts, circle(point{0, 0.46}, 0.14))
	return s.shape()
}
