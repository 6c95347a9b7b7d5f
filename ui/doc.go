// Package ui is the frame of the tray app: one window with its navigation, its banners and the views in it.
//
// Where things are:
//
//	ui              the frame: window, navigation, keyboard, banners, and what the person's answers lead to
//	ui/watch        one client state that follows the daemon: status, cards, activity, sessions; no Fyne in it
//	ui/tray         icon and menu by StatusNotifierItem; no window needed
//	ui/notify       desktop notifications by org.freedesktop.Notifications
//	ui/single       one sp-tray a home, the second start raises the first; the autostart entry
//	ui/icon         the tray's icons
//	ui/look         colours, sizes, texts and pictures that all views share
//	ui/words        every text, in every language
//	ui/pending      what waits: cards, calls that came again, outcomes that are not known
//	ui/card         a card that waits
//	ui/record       the original record of a call that came again, and the detail of any execution
//	ui/activity     the list of executions
//	ui/sessions     the runs that are authorized
//	ui/vaultview    unlock, credentials, health, first run
//	ui/actions      contracts and upstreams
//	ui/bustest      a session bus with a panel and a notification daemon, for tests
//	cmd/sp-tray     composition, and the only importer of fyne.io/fyne/v2/app, which needs cgo and a display
//
// A view is a package that takes the small interface that it uses and plain values of daemon/api. It imports neither ui nor ui/watch, and starts no goroutine that
// outlives its window. Work is done in goroutines and written to widgets by look.Do.
package ui
