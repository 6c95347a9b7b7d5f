// Package tray holds the end-to-end tests of the tray app: a real sp-tray in a real X server without a screen, with a real spd, real MCP clients, a panel that shows its icon and a
// notification daemon that shows its notices. The person is xdotool: it types the passphrase and presses keys.
//
// It promises nothing to importers; its tests are its content. `make screenshots` runs them to draw docs/screenshots.
package tray
