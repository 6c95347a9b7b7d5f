package home

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Config is what config.yaml says, with the defaults in place. Security settings are not here but in the vault, because an agent can edit files.
type Config struct {
	AnswerWithin time.Duration // answer_within: after it, a call that is not finished is answered "pending"; below common clients' time limits
	MCPHTTP      string        // mcp_http: loopback address of the MCP listener; empty is off
	Actions      string        // actions: the folder of the contracts
	SegmentSize  int64         // segment_size: bytes of one journal segment
}

const (
	maxConfig      = 64 << 10
	minSegmentSize = 64 << 10
	maxSegmentSize = 4 << 30
)

// file is config.yaml as it is written.
type file struct {
	AnswerWithin *string `yaml:"answer_within"`
	CardTTL      *string `yaml:"card_ttl"`  // of earlier versions
	IdleLock     *string `yaml:"idle_lock"` // of earlier versions
	MCPHTTP      *string `yaml:"mcp_http"`
	Actions      *string `yaml:"actions"`
	SegmentSize  *string `yaml:"segment_size"`
}

// LoadConfig reads config.yaml. A missing file means the defaults; an unknown field or a value that makes no sense is an error that names line and column.
func (h Home) LoadConfig() (Config, error) {
	b, err := ReadPrivate(h.ConfigFile(), maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = nil, nil
	}
	if err != nil {
		return Config{}, err
	}
	c, err := parseConfig(b)
	if err != nil {
		return Config{}, fmt.Errorf("%s:%w", h.ConfigFile(), err)
	}
	switch {
	case c.Actions == "":
		c.Actions = h.Actions()
	case !filepath.IsAbs(c.Actions):
		c.Actions = filepath.Join(h.Config, c.Actions)
	}
	return c, nil
}

func parseConfig(b []byte) (Config, error) {
	c := Config{AnswerWithin: 45 * time.Second, SegmentSize: 64 << 20}
	var f file
	err := yaml.NewDecoder(bytes.NewReader(b), yaml.DisallowUnknownField()).Decode(&f)
	if err != nil && !errors.Is(err, io.EOF) {
		return Config{}, yamlError(err)
	}
	duration := func(name string, text *string, into *time.Duration, least, most time.Duration) error {
		if text == nil {
			return nil
		}
		d, err := time.ParseDuration(*text)
		if err != nil || d < least || d > most {
			return at(b, name, "%q is not a time between %s and %s; write for instance 45s or 10m", *text, least, most)
		}
		*into = d
		return nil
	}
	if err := duration("answer_within", f.AnswerWithin, &c.AnswerWithin, time.Second, 10*time.Minute); err != nil {
		return Config{}, err
	}
	for name, text := range map[string]*string{"card_ttl": f.CardTTL, "idle_lock": f.IdleLock} {
		if text != nil {
			return Config{}, at(b, name, "this is a security setting, and lies in the vault, where an agent cannot edit it: remove this line, then run `spctl settings set %s %s`", name, *text)
		}
	}
	if f.MCPHTTP != nil && *f.MCPHTTP != "off" && *f.MCPHTTP != "false" {
		if err := CheckLoopback(*f.MCPHTTP); err != nil {
			return Config{}, at(b, "mcp_http", "%v", err)
		}
		c.MCPHTTP = *f.MCPHTTP
	}
	if f.Actions != nil {
		c.Actions = *f.Actions
	}
	if f.SegmentSize != nil {
		if c.SegmentSize, err = parseSize(*f.SegmentSize); err != nil {
			return Config{}, at(b, "segment_size", "%v", err)
		}
	}
	return c, nil
}

// CheckLoopback accepts an IP address of this machine only, with a port; 0 lets the system choose one.
func CheckLoopback(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !ap.Addr().IsLoopback() {
		return fmt.Errorf("%q is not a loopback address with a port; write for instance 127.0.0.1:7717, or off", address)
	}
	return nil
}

func parseSize(text string) (int64, error) {
	number, unit := strings.TrimSpace(text), int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = strings.TrimSpace(rest), u
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > maxSegmentSize/unit || n*unit < minSegmentSize {
		return 0, fmt.Errorf("%q is not a size between 64KiB and 4GiB; write for instance 64MiB", text)
	}
	return n * unit, nil
}

// yamlError turns the library's error into "LINE:COLUMN: what".
func yamlError(err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil {
		return fmt.Errorf(" %w", err)
	}
	p := ye.GetToken().Position
	return fmt.Errorf("%d:%d: %s; known fields are answer_within, mcp_http, actions and segment_size", p.Line, p.Column, ye.GetMessage())
}

// at names the line of a top-level field.
func at(b []byte, field, format string, args ...any) error {
	for i, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), field+":") {
			column := strings.Index(line, ":") + 2
			for column <= len(line) && line[column-1] == ' ' {
				column++
			}
			return fmt.Errorf("%d:%d: %s: %s", i+1, column, field, fmt.Sprintf(format, args...))
		}
	}
	return fmt.Errorf(" %s: %s", field, fmt.Sprintf(format, args...))
}
