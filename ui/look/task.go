package look

import "context"

// Work does things of the daemon's in goroutines, and brings what came of them back to the thread that draws.
type Work struct {
	Context context.Context // ends with the window
	Go      func(func())    // how a goroutine is started
}

// NewWork fills in what was not given.
func NewWork(ctx context.Context, start func(func())) Work {
	if ctx == nil {
		ctx = context.Background()
	}
	if start == nil {
		start = func(f func()) { go f() }
	}
	return Work{ctx, start}
}

// Do calls f in a goroutine, and then done with its error.
func (w Work) Do(f func(ctx context.Context) error, done func(error)) {
	w.Go(func() {
		err := f(w.Context)
		Do(func() { done(err) })
	})
}
