// Command picture draws what a program printed as an SVG of a terminal: its standard input, and nothing else.
//
//	{ echo '$ spctl demo'; spctl demo; } | go run ./docs/picture > docs/demo.svg
//
// `make picture` does that. Bold, dim and the sixteen colours are kept; other control sequences are left out.
package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Metrics of the drawing, in pixels. Each run of text is told its width, so that every viewer's monospace font fits.
const (
	cell, lineHeight, margin = 8.4, 20, 20
	bar                      = 32 // the window's title bar
)

var palette = [16]string{
	"#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
	"#6b7589", "#ef8a92", "#b1d896", "#f0d399", "#85c4f5", "#d69ae4", "#7fcfd9", "#ffffff",
}

const foreground, background = "#d8dee9", "#1e2430"

var escape = regexp.MustCompile("\x1b\\[([0-9;]*)([A-Za-z])|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)")

// style is how a run of characters looks.
type style struct {
	color     string
	bold, dim bool
}

func (s *style) apply(parameters string) {
	for p := range strings.SplitSeq(parameters, ";") {
		n, _ := strconv.Atoi(p)
		switch {
		case n == 0:
			*s = style{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.dim = true
		case n == 22:
			s.bold, s.dim = false, false
		case n >= 30 && n <= 37:
			s.color = palette[n-30]
		case n == 39:
			s.color = ""
		case n >= 90 && n <= 97:
			s.color = palette[n-90+8]
		}
	}
}

func main() {
	if err := draw(os.Stdout, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func draw(w io.Writer, r io.Reader) error {
	var body strings.Builder
	var now style
	rows, columns := 0, 0
	in := bufio.NewScanner(r)
	for in.Scan() {
		line := strings.ReplaceAll(strings.TrimRight(in.Text(), "\r "), "\t", "    ")
		column, y := 0, bar+margin+rows*lineHeight
		put := func(text string) {
			width := utf8.RuneCountInString(text)
			if strings.TrimSpace(text) != "" {
				fmt.Fprintf(&body, `<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n",
					margin+float64(column)*cell, y, float64(width)*cell, now.attributes(), html.EscapeString(text))
			}
			column += width
		}
		rest := line
		for {
			at := escape.FindStringSubmatchIndex(rest)
			if at == nil {
				put(rest)
				break
			}
			put(rest[:at[0]])
			if at[4] >= 0 && rest[at[4]:at[5]] == "m" {
				now.apply(rest[at[2]:at[3]])
			}
			rest = rest[at[1]:]
		}
		rows, columns = rows+1, max(columns, column)
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("reading what to draw: %w", err)
	}
	if columns == 0 {
		return fmt.Errorf("reading what to draw: there is nothing")
	}
	width, height := int(float64(columns)*cell)+2*margin, bar+margin+rows*lineHeight
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">
<rect width="%d" height="%d" rx="8" fill="%s"/>
<circle cx="20" cy="16" r="5" fill="#e06c75"/><circle cx="38" cy="16" r="5" fill="#e5c07b"/><circle cx="56" cy="16" r="5" fill="#98c379"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace" font-size="14" fill="%s" xml:space="preserve">
%s</g>
</svg>
`, width, height, width, height, width, height, background, foreground, body.String())
	return err
}

func (s style) attributes() string {
	var a strings.Builder
	if s.color != "" {
		fmt.Fprintf(&a, ` fill="%s"`, s.color)
	}
	if s.bold {
		a.WriteString(` font-weight="bold"`)
	}
	if s.dim {
		a.WriteString(` opacity="0.6"`)
	}
	return a.String()
}
