// Package harden closes a program of ours to other programs of the same user, and says by the kernel's word which program it is.
//
// On Linux it promises: after Close no other process of the user can read this one's memory, attach to it or get its core (prctl(2), PR_SET_DUMPABLE; ptrace(2)). Alone is the answer to
// who can do so already: whoever traced the process from its start keeps doing so, and is found here. A Group is what the program was installed with: an effective group that nobody of
// the user has, and that the kernel gives to this executable only (execve(2), set-group-ID), never while it is traced or preloaded. A socket made under it carries it (SO_PEERCRED), which tells the
// other side that the installed program, and no other, is there.
//
// It does not promise anything against root, nor against whoever exchanged the executable where the user may write it.
//
// On other systems it does nothing, and Group.Sealed says so.
package harden

import (
	"slices"
	"strings"
)

// Dangerous are environment variables that make a program of ours behave otherwise than it was built to, before or after main: the dynamic linker's, the Go runtime's (one of them prints
// HTTP headers), those that exchange whom TLS trusts or where requests go, those by which the C libraries beneath the tray app load drivers, plugins and converters from folders of
// somebody's choosing, and those that draw its letters otherwise.
func Dangerous(environ []string) (names []string) {
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if dangerous(name, value) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func dangerous(name, value string) bool {
	switch strings.ToUpper(name) {
	case "GOTRACEBACK":
		return value != "none" // which the runtime itself sets in a program that has a group of its own
	case "GODEBUG", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY":
		return true
	case "LIBGL_DRIVERS_PATH", "LIBGL_DRIVERS_DIR", "MESA_LOADER_DRIVER_OVERRIDE", "GBM_BACKENDS_PATH", "GBM_BACKEND", "LIBDECOR_PLUGIN_DIR", "GCONV_PATH":
		return true
	}
	for _, prefix := range []string{"__EGL_", "__GLX_", "VK_", "FYNE_FONT"} {
		if strings.HasPrefix(strings.ToUpper(name), prefix) {
			return true
		}
	}
	return Preloading(name)
}

// Preloading says whether the variable is one of the dynamic linker's (ld.so(8)), by which other code comes into a dynamically linked program.
func Preloading(name string) bool { return strings.HasPrefix(name, "LD_") }

// Clean returns the environment without what is dangerous.
func Clean(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, value, _ := strings.Cut(pair, "=")
		return dangerous(name, value)
	})
}
