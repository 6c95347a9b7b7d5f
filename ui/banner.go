package ui

import (
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/watch"
	"singlepass.dev/ui/words"
)

// banner is a state of the whole that the person has to know whatever page is in sight.
type banner struct {
	tone  look.Tone
	shape look.Shape
	text  string
	hint  string // what to do
}

// banners says what stands above the pages, the most urgent first.
func banners(s watch.State, hosted bool) (list []banner) {
	switch s.Link {
	case watch.Starting:
		list = append(list, banner{look.Calm, look.ShapeWaiting, words.Say("banner.starting"), ""})
	case watch.Down:
		list = append(list, banner{look.Careful, look.ShapeNothing, words.Say("banner.down"), words.Say("banner.down_hint")})
	case watch.Stranger:
		list = append(list, banner{look.Wrong, look.ShapeWarning, words.Say("banner.stranger", "Problem", s.Problem), s.Hint})
	case watch.Trouble:
		list = append(list, banner{look.Wrong, look.ShapeWarning, words.Say("banner.trouble", "Problem", s.Problem), s.Hint})
	case watch.Up:
		switch s.Status.Journal {
		case "quarantine":
			list = append(list, banner{look.Wrong, look.ShapeWarning, words.Say("banner.quarantine", "Problem", s.Status.Problem), words.Say("banner.quarantine_hint")})
		case "unavailable":
			list = append(list, banner{look.Wrong, look.ShapeWarning, words.Say("banner.no_journal", "Problem", s.Status.Problem), ""})
		}
		if l := s.Status.LockedCalls; l != nil {
			list = append(list, banner{look.Careful, look.ShapeLock, words.Count("banner.denied_calls", l.Calls, "Time", l.Last.Local().Format("15:04")), ""})
		}
		if s.Status.Changed > 0 {
			list = append(list, banner{look.Careful, look.ShapeInfo, words.Count("banner.changed", s.Status.Changed), ""})
		}
	}
	if !hosted {
		list = append(list, banner{look.Calm, look.ShapeInfo, words.Say("banner.no_tray"), ""})
	}
	return list
}
