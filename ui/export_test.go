package ui

// Rest is rest, for tests that are the loop.
type Rest struct{ r *rest }

// NewRest returns one that sends work by a function of the test's.
func NewRest(l Loop, send func(func())) *Rest {
	r := newRest(l)
	r.send = send
	return &Rest{r}
}

func (r *Rest) Frame()               { r.r.frame() }
func (r *Rest) Do(f func())          { r.r.do(f) }
func (r *Rest) Sight(visible bool)   { r.r.sight(visible) }
func (r *Rest) Blinks(f func() bool) { r.r.blinks = f }
