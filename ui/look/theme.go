// Package look is how the tray app looks: its theme, and the few widgets and pictures that several views share.
//
// Promises: text of others goes through package visible before it is drawn. What a colour says is said by a word and a shape as well. Every pair of colours that text is drawn with has a
// contrast of at least 4.5 to 1 (WCAG 2.2, 1.4.3); a test holds it. Nothing here animates or keeps a clock: an idle view costs nothing.
package look

import (
	"image/color"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/theme"
)

// Colours that Fyne has no name for.
const (
	Muted     fyne.ThemeColorName = "singlepassMuted"    // what explains, beside what is said
	Surface   fyne.ThemeColorName = "singlepassSurface"  // a panel
	Sunken    fyne.ThemeColorName = "singlepassSunken"   // what is quoted: requests, results
	Good      fyne.ThemeColorName = "singlepassGood"     // it happened
	Doubt     fyne.ThemeColorName = "singlepassDoubt"    // it is not known, or wants care
	Bad       fyne.ThemeColorName = "singlepassBad"      // it went wrong, or was refused
	Busy      fyne.ThemeColorName = "singlepassBusy"     // it is under way
	GoodBack  fyne.ThemeColorName = "singlepassGoodBack" // behind text of the same name
	DoubtBack fyne.ThemeColorName = "singlepassDoubtBack"
	BadBack   fyne.ThemeColorName = "singlepassBadBack"
	BusyBack  fyne.ThemeColorName = "singlepassBusyBack"
)

// Theme is the app's theme. The zero value follows the system's choice of dark or light.
type Theme struct {
	fixed   bool
	variant fyne.ThemeVariant
}

// Fixed is the theme in one variant, whatever the system says.
func Fixed(v fyne.ThemeVariant) *Theme { return &Theme{fixed: true, variant: v} }

var light = map[fyne.ThemeColorName]color.Color{
	theme.ColorNameBackground: rgb(0xf4f5f7), Surface: rgb(0xffffff), Sunken: rgb(0xf0f2f5), theme.ColorNameForeground: rgb(0x1a1e24), Muted: rgb(0x57606c),
	theme.ColorNameSeparator: rgb(0xd9dde3), theme.ColorNamePrimary: rgb(0x1f57c3), theme.ColorNameForegroundOnPrimary: rgb(0xffffff), theme.ColorNameHyperlink: rgb(0x1f57c3),
	theme.ColorNameButton: rgb(0xe6e9ee), theme.ColorNameDisabledButton: rgb(0xedeff2), theme.ColorNameDisabled: rgb(0x98a1ad), theme.ColorNamePlaceHolder: rgb(0x606a76),
	theme.ColorNameInputBackground: rgb(0xffffff), theme.ColorNameInputBorder: rgb(0xb9c0ca), theme.ColorNameHeaderBackground: rgb(0xebedf1),
	theme.ColorNameMenuBackground: rgb(0xffffff), theme.ColorNameOverlayBackground: rgb(0xffffff), theme.ColorNameHover: rgba(0x1a1e2410), theme.ColorNamePressed: rgba(0x1a1e2422),
	theme.ColorNameFocus: rgba(0x1f57c355), theme.ColorNameSelection: rgba(0x1f57c326), theme.ColorNameScrollBar: rgba(0x1a1e2466), theme.ColorNameShadow: rgba(0x00000022),
	theme.ColorNameError: rgb(0xb3261e), theme.ColorNameWarning: rgb(0x8a5200), theme.ColorNameSuccess: rgb(0x1b6e3a),
	theme.ColorNameForegroundOnError: rgb(0xffffff), theme.ColorNameForegroundOnWarning: rgb(0xffffff), theme.ColorNameForegroundOnSuccess: rgb(0xffffff),
	Good: rgb(0x1b6e3a), Doubt: rgb(0x8a5200), Bad: rgb(0xb3261e), Busy: rgb(0x1f57c3),
	GoodBack: rgb(0xe5f4ea), DoubtBack: rgb(0xfff1d6), BadBack: rgb(0xfce8e6), BusyBack: rgb(0xe7eefc),
}

var dark = map[fyne.ThemeColorName]color.Color{
	theme.ColorNameBackground: rgb(0x14171b), Surface: rgb(0x1d2126), Sunken: rgb(0x15191d), theme.ColorNameForeground: rgb(0xe8ebef), Muted: rgb(0xa2acb8),
	theme.ColorNameSeparator: rgb(0x333a42), theme.ColorNamePrimary: rgb(0x8db2ff), theme.ColorNameForegroundOnPrimary: rgb(0x0b1b3a), theme.ColorNameHyperlink: rgb(0x8db2ff),
	theme.ColorNameButton: rgb(0x2c323a), theme.ColorNameDisabledButton: rgb(0x22272d), theme.ColorNameDisabled: rgb(0x68727e), theme.ColorNamePlaceHolder: rgb(0x98a2ae),
	theme.ColorNameInputBackground: rgb(0x15191d), theme.ColorNameInputBorder: rgb(0x4a535e), theme.ColorNameHeaderBackground: rgb(0x21262c),
	theme.ColorNameMenuBackground: rgb(0x252a31), theme.ColorNameOverlayBackground: rgb(0x1d2126), theme.ColorNameHover: rgba(0xffffff12), theme.ColorNamePressed: rgba(0xffffff26),
	theme.ColorNameFocus: rgba(0x8db2ff66), theme.ColorNameSelection: rgba(0x8db2ff33), theme.ColorNameScrollBar: rgba(0xffffff55), theme.ColorNameShadow: rgba(0x00000066),
	theme.ColorNameError: rgb(0xff9a91), theme.ColorNameWarning: rgb(0xf2c063), theme.ColorNameSuccess: rgb(0x7fd69b),
	theme.ColorNameForegroundOnError: rgb(0x3a0905), theme.ColorNameForegroundOnWarning: rgb(0x2e1d00), theme.ColorNameForegroundOnSuccess: rgb(0x06240f),
	Good: rgb(0x7fd69b), Doubt: rgb(0xf2c063), Bad: rgb(0xff9a91), Busy: rgb(0x8db2ff),
	GoodBack: rgb(0x16301f), DoubtBack: rgb(0x33270f), BadBack: rgb(0x3a1d1b), BusyBack: rgb(0x1a2740),
}

func rgb(v uint32) color.Color {
	return color.NRGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 0xff}
}

func rgba(v uint32) color.Color {
	return color.NRGBA{R: uint8(v >> 24), G: uint8(v >> 16), B: uint8(v >> 8), A: uint8(v)}
}

// Color implements fyne.Theme.
func (t *Theme) Color(name fyne.ThemeColorName, v fyne.ThemeVariant) color.Color {
	if t.fixed {
		v = t.variant
	}
	palette := light
	if v == theme.VariantDark {
		palette = dark
	}
	if c, ok := palette[name]; ok {
		return c
	}
	return theme.DefaultTheme().Color(name, v)
}

// Font implements fyne.Theme. Letters that Fyne's own fonts lack, as those of Chinese, are taken from the system's fonts by Fyne itself.
func (t *Theme) Font(style fyne.TextStyle) fyne.Resource { return theme.DefaultTheme().Font(style) }

// Icon implements fyne.Theme.
func (t *Theme) Icon(name fyne.ThemeIconName) fyne.Resource { return theme.DefaultTheme().Icon(name) }

// Size implements fyne.Theme.
func (t *Theme) Size(name fyne.ThemeSizeName) float32 {
	switch name {
	case theme.SizeNamePadding:
		return 4
	case theme.SizeNameInnerPadding:
		return 6
	case theme.SizeNameText:
		return 14
	case theme.SizeNameCaptionText:
		return 12
	case theme.SizeNameSubHeadingText:
		return 17
	case theme.SizeNameHeadingText:
		return 21
	case theme.SizeNameLineSpacing:
		return 3
	case theme.SizeNameInputRadius, theme.SizeNameSelectionRadius:
		return 6
	case theme.SizeNameScrollBar:
		return 12
	}
	return theme.DefaultTheme().Size(name)
}
