// Command empty opens a window of Fyne's with nothing in it: what BenchmarkIdle holds the tray app against.
package main

import (
	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/app"
)

func main() {
	w := app.New().NewWindow("Empty")
	w.Resize(fyne.NewSize(1040, 720))
	w.ShowAndRun()
}
