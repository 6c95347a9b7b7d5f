package client

import (
	"fmt"
	"os"
	"path/filepath"
)

// Installed is the spd that was installed beside this program.
func Installed() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the installed spd: %w", err)
	}
	return filepath.Join(filepath.Dir(self), "spd"), nil
}
