package harden_test

import (
	"slices"
	"testing"

	"singlepass.dev/daemon/harden"
)

func TestWhatWouldChangeAProgramIsTakenOutOfItsEnvironment(t *testing.T) {
	environ := []string{
		"PATH=/bin", "LD_PRELOAD=/tmp/x.so", "GODEBUG=http2debug=2", "SSL_CERT_FILE=/tmp/ca.pem", "https_proxy=http://127.0.0.1:1", "GOTRACEBACK=crash", "HOME=/h", "DBUS_SESSION_BUS_ADDRESS=unix:path=/x",
	}
	if got, want := harden.Clean(environ), []string{"PATH=/bin", "HOME=/h", "DBUS_SESSION_BUS_ADDRESS=unix:path=/x"}; !slices.Equal(got, want) {
		t.Errorf("left: %v", got)
	}
	if got, want := harden.Dangerous(environ), []string{"GODEBUG", "GOTRACEBACK", "LD_PRELOAD", "SSL_CERT_FILE", "https_proxy"}; !slices.Equal(got, want) {
		t.Errorf("dangerous: %v", got)
	}
}

func TestWhatWouldLoadCodeOrOtherLettersIntoTheTrayIsTakenOutOfItsEnvironment(t *testing.T) {
	loading := []string{
		"FYNE_FONT=/tmp/f.ttf", "FYNE_FONT_MONOSPACE=/tmp/f.ttf", "GBM_BACKENDS_PATH=/tmp", "GCONV_PATH=/tmp", "LIBDECOR_PLUGIN_DIR=/tmp", "LIBGL_DRIVERS_PATH=/tmp", "MESA_LOADER_DRIVER_OVERRIDE=../x", "VK_ICD_FILENAMES=/tmp/x.json",
		"__EGL_VENDOR_LIBRARY_FILENAMES=/tmp/x.json", "__GLX_VENDOR_LIBRARY_NAME=x",
	}
	kept := []string{"FYNE_SCALE=2", "FYNE_THEME=dark", "LIBGL_ALWAYS_SOFTWARE=1", "XDG_RUNTIME_DIR=/run/user/1"}
	if got := harden.Clean(append(slices.Clone(loading), kept...)); !slices.Equal(got, kept) {
		t.Errorf("left: %v", got)
	}
}

func TestWhatTheRuntimeSetsByItselfIsNotDangerous(t *testing.T) {
	if got := harden.Dangerous([]string{"GOTRACEBACK=none"}); len(got) != 0 { // or a program with a group of its own would start anew for ever
		t.Errorf("dangerous: %v", got)
	}
}
