//go:build !unix

package single

import (
	"fmt"
	"os"
)

// acquire has no lock to take on this system; a second start is another tray app.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claiming this home for the tray app: %w", err)
	}
	return f, nil
}
