// Package tray holds the end-to-end tests of the tray app: a real sp-tray in a real X server without a screen, with a real spd, real MCP clients, Xfce's panel and
// notification daemon, or, where every change has to be told, a panel and a notification daemon of the test's own. The person is xdotool: it types the passphrase and presses keys.
//
// It promises nothing to importers; its tests are its content. `make screenshots` runs them to draw docs/screenshots.
package tray
