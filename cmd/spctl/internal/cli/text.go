package cli

import (
	"fmt"
	"time"
)

// plural counts things; the hint follows only where there are any.
func plural(n int, thing, hint string) string {
	switch n {
	case 0:
		return "none"
	case 1:
		return "1 " + thing + hint
	}
	return fmt.Sprintf("%d %ss%s", n, thing, hint)
}

// because puts a reason in words after what it is the reason of, where there is one.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// local shows a time to a person.
func local(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// ago shows how long something is away, past or future, in the largest unit that says enough.
func ago(d time.Duration) string {
	switch d = d.Abs().Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// took shows the time between two steps.
func took(ms int64) string {
	switch {
	case ms < 1000:
		return fmt.Sprintf("+%d ms", ms)
	case ms < 60_000:
		return fmt.Sprintf("+%.1f s", float64(ms)/1000)
	}
	return "+" + ago(time.Duration(ms)*time.Millisecond)
}
