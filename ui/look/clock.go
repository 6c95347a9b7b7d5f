package look

import (
	"fmt"
	"time"

	"singlepass.dev/ui/words"
)

// Clock shows a time of day; with its date where that is not the day of now.
func Clock(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// ClockMS shows a time of day with milliseconds: two stages are often closer than a second.
func ClockMS(t time.Time) string { return t.Local().Format("15:04:05.000") }

// Span shows how long something is, in the unit that says enough.
func Span(d time.Duration) string {
	switch d = d.Abs(); {
	case d < time.Second:
		return words.Say("span.ms", "N", d.Milliseconds())
	case d < 10*time.Second:
		return words.Say("span.s", "N", fmt.Sprintf("%.1f", d.Seconds()))
	case d < time.Minute:
		return words.Say("span.s", "N", int(d.Seconds()))
	case d < time.Hour:
		return words.Say("span.min", "N", int(d.Minutes()))
	case d < 48*time.Hour:
		return words.Say("span.h", "N", int(d.Hours()))
	}
	return words.Say("span.days", "N", int(d.Hours()/24))
}

// Gap shows the time between two moments. One that is negative says that the clock was set back meanwhile.
func Gap(d time.Duration) string {
	if d < 0 {
		return words.Say("span.back")
	}
	return "+" + Span(d)
}

// Ago shows how long ago something was.
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < time.Second && d > -time.Minute {
		return words.Say("ago.now")
	}
	if d < 0 {
		return Clock(t, now)
	}
	return words.Say("ago", "Span", Span(d))
}

// Left shows how long is left of a period, as minutes and seconds. A clock that was set back does not make it longer than it was.
func Left(now, from, until time.Time) string {
	d := min(until.Sub(now), until.Sub(from))
	if d <= 0 {
		return words.Say("left.none")
	}
	s := int(d.Round(time.Second).Seconds())
	if s >= 3600 {
		return words.Say("left", "Time", fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60))
	}
	return words.Say("left", "Time", fmt.Sprintf("%d:%02d", s/60, s%60))
}
