// Package home knows where Singlepass keeps its things, makes those places, and refuses them when somebody else could read or replace what is in them.
//
// Promises: [Resolve] reads only the environment that it is given and touches no file. [Home.Create] and [Home.Check] leave or find every folder 0700, owned by the user and not
// a symbolic link, or say in a [Problem] which command puts it right; they never repair something that exists, because what lay open may have been read or changed.
//
// Non-promises: other programs of the same user can read and write here. What they could do harm with lies sealed in the vault, or shows in the journal's chain.
//
// Frozen: the places of docs/interface.md and the names of the fields of config.yaml.
package home

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Variable is the environment variable that does the same as the flag --home.
const Variable = "SINGLEPASS_HOME"

// Home is the set of places of one profile. All paths are absolute.
type Home struct {
	Root   string // set with --home only: the folder that holds the three others
	Config string // config.yaml and actions/
	Data   string // vault.db, the journal, index.db
	Run    string // the sockets
}

// Resolve finds the places. flag is the value of --home, or empty; getenv is os.Getenv outside of tests.
//
// Without a home of its own a profile follows the XDG Base Directory Specification 0.8, which says to ignore relative paths. Where XDG_RUNTIME_DIR is missing (agents start their
// servers with a bare environment) /run/user/UID is taken if it is there, and else run/ beside the data, so that all programs of one user meet at the same socket.
func Resolve(flag string, getenv func(string) string) (Home, error) {
	root := flag
	if root == "" {
		root = getenv(Variable)
	}
	if root != "" {
		abs, err := filepath.Abs(root)
		if err != nil {
			return Home{}, fmt.Errorf("resolving home %s: %w", root, err)
		}
		return Home{Root: abs, Config: filepath.Join(abs, "config"), Data: filepath.Join(abs, "data"), Run: filepath.Join(abs, "run")}, nil
	}
	user := getenv("HOME")
	base := func(variable, otherwise string) (string, error) {
		if dir := getenv(variable); filepath.IsAbs(dir) {
			return filepath.Join(dir, "singlepass"), nil
		}
		if !filepath.IsAbs(user) {
			return "", fmt.Errorf("resolving home: neither %s nor HOME is set; set one, or give --home DIR", variable)
		}
		return filepath.Join(user, otherwise, "singlepass"), nil
	}
	var h Home
	var err error
	if h.Config, err = base("XDG_CONFIG_HOME", ".config"); err != nil {
		return Home{}, err
	}
	if h.Data, err = base("XDG_DATA_HOME", ".local/share"); err != nil {
		return Home{}, err
	}
	h.Run = runtimeDir(getenv("XDG_RUNTIME_DIR"), h.Data)
	return h, nil
}

func runtimeDir(fromEnvironment, data string) string {
	if filepath.IsAbs(fromEnvironment) {
		return filepath.Join(fromEnvironment, "singlepass")
	}
	login := filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	if checkFolder(login) == nil {
		return filepath.Join(login, "singlepass")
	}
	return filepath.Join(data, "run")
}

// The files and folders of a home. The actions folder can be moved by config.yaml.
func (h Home) ConfigFile() string     { return filepath.Join(h.Config, "config.yaml") }
func (h Home) Actions() string        { return filepath.Join(h.Config, "actions") }
func (h Home) Vault() string          { return filepath.Join(h.Data, "vault.db") }
func (h Home) Journal() string        { return filepath.Join(h.Data, "journal") }
func (h Home) Index() string          { return filepath.Join(h.Data, "index.db") }
func (h Home) AgentSocket() string    { return filepath.Join(h.Run, "agent.sock") }
func (h Home) OperatorSocket() string { return filepath.Join(h.Run, "operator.sock") }

// maxSocketPath is the room for a path in Linux's sockaddr_un, less its terminating zero (unix(7)).
const maxSocketPath = 107

// CheckSockets refuses a home in which the sockets' paths are too long for the system.
func (h Home) CheckSockets() error {
	for _, path := range []string{h.AgentSocket(), h.OperatorSocket()} {
		if len(path) > maxSocketPath {
			return fmt.Errorf("socket path %s has %d bytes, and the system allows %d; choose a shorter folder, for instance --home ~/.sp", path, len(path), maxSocketPath)
		}
	}
	return nil
}

// folders lists what must be there, outermost first.
func (h Home) folders() []string {
	var dirs []string
	if h.Root != "" {
		dirs = append(dirs, h.Root)
	}
	return append(dirs, h.Config, h.Actions(), h.Data, h.Journal(), h.Run)
}

// Create makes every folder that is missing, 0700, and checks the ones that are there.
func (h Home) Create() error {
	if err := h.CheckSockets(); err != nil {
		return err
	}
	for _, dir := range h.folders() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making folder %s: %w", dir, err)
		}
		if err := checkFolder(dir); err != nil {
			return err
		}
	}
	return h.checkFiles()
}

// Check returns the first problem of a home that exists; a folder that is missing is none.
func (h Home) Check() error {
	problems := h.Problems()
	if len(problems) == 0 {
		return nil
	}
	return problems[0]
}

// Problems returns everything that is wrong with the folders and files of a home.
func (h Home) Problems() []error {
	var problems []error
	if err := h.CheckSockets(); err != nil {
		problems = append(problems, err)
	}
	for _, dir := range h.folders() {
		if err := checkFolder(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	if err := h.checkFiles(); err != nil {
		problems = append(problems, err)
	}
	return problems
}

func (h Home) checkFiles() error {
	for _, file := range []string{h.ConfigFile(), h.Vault(), h.Index()} {
		if err := CheckFile(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Problem is a place that cannot be trusted, and the command that mends it.
type Problem struct {
	Path string
	What string
	Fix  string
}

func (p *Problem) Error() string { return fmt.Sprintf("%s %s; to mend it: %s", p.Path, p.What, p.Fix) }

func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("checking folder %s: %w", dir, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return &Problem{dir, "is a symbolic link, and its target could be exchanged", fmt.Sprintf("rm %s && mkdir -m 700 %s", quote(dir), quote(dir))}
	case !info.IsDir():
		return &Problem{dir, "is not a folder", "mv " + quote(dir) + " " + quote(dir+".old")}
	case owner(info) != os.Getuid():
		return &Problem{dir, fmt.Sprintf("belongs to user %d and not to you", owner(info)), fmt.Sprintf("sudo chown %d %s", os.Getuid(), quote(dir))}
	case rights(info) != 0:
		return &Problem{dir, fmt.Sprintf("is open to others (mode %04o)", info.Mode().Perm()), "chmod 700 " + quote(dir)}
	}
	return checkAncestors(dir)
}

// maxLinks is how many symbolic links Linux follows in one path (path_resolution(7)).
const maxLinks = 40

// checkAncestors refuses a folder above which somebody else can exchange things, by following the path as the system does: through the symbolic links, whose owners count too.
// Group-writable folders pass: with user private groups they are common and harmless.
func checkAncestors(dir string) error {
	at, links := string(filepath.Separator), 0
	if err := checkAncestor(at); err != nil {
		return err
	}
	for todo := parts(filepath.Dir(dir)); len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		if next == ".." {
			at = filepath.Dir(at)
			continue
		}
		next = filepath.Join(at, next)
		if err := checkAncestor(next); err != nil {
			return err
		}
		switch link, err := os.Readlink(next); {
		case err != nil: // no link
			at = next
		case links == maxLinks:
			return fmt.Errorf("checking folder %s: there are too many symbolic links above it", dir)
		default:
			links++
			if filepath.IsAbs(link) {
				at = string(filepath.Separator)
			}
			todo = append(parts(link), todo...)
		}
	}
	return nil
}

func parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

// overflowUser owns what a user namespace does not map (user_namespaces(7)): in a container without root, the folders of the system.
const overflowUser = 65534

func checkAncestor(parent string) error {
	info, err := os.Lstat(parent)
	if err != nil {
		return fmt.Errorf("checking folder %s: %w", parent, err)
	}
	if uid := owner(info); uid != 0 && uid != os.Getuid() && uid != overflowUser {
		return &Problem{parent, fmt.Sprintf("belongs to user %d, who can exchange what is in it", uid), "choose a folder below your own, for instance --home ~/.sp"}
	}
	if info.IsDir() && info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return &Problem{parent, fmt.Sprintf("lets everybody exchange what is in it (mode %04o)", info.Mode().Perm()), "chmod o-w " + quote(parent)}
	}
	return nil
}

// CheckFile refuses a file that is not a regular one, not ours, or open to others. A missing file gives an error that is fs.ErrNotExist.
func CheckFile(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("checking file %s: %w", path, err)
	}
	return checkFileInfo(path, info)
}

func checkFileInfo(path string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return &Problem{path, "is not a regular file", "replace it by a file of your own with mode 600"}
	case owner(info) != os.Getuid():
		return &Problem{path, fmt.Sprintf("belongs to user %d and not to you", owner(info)), fmt.Sprintf("sudo chown %d %s", os.Getuid(), quote(path))}
	case rights(info) != 0:
		return &Problem{path, fmt.Sprintf("is open to others (mode %04o)", info.Mode().Perm()), "chmod 600 " + quote(path)}
	}
	return nil
}

// CheckUnexchangeable refuses a folder in which somebody else could put another file in a file's place.
func CheckUnexchangeable(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("checking folder %s: %w", dir, err)
	case owner(info) != os.Getuid():
		return &Problem{dir, fmt.Sprintf("belongs to user %d and not to you", owner(info)), fmt.Sprintf("sudo chown %d %s", os.Getuid(), quote(dir))}
	case rights(info)&0o022 != 0:
		return &Problem{dir, fmt.Sprintf("lets others exchange what is in it (mode %04o)", info.Mode().Perm()), "chmod go-w " + quote(dir)}
	}
	return nil
}

// Beginning returns at most the first n bytes of a regular file, whoever may read it. It follows no link, and no pipe holds it up.
func Beginning(path string, n int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("it is not a regular file"), err)
	}
	b := make([]byte, n)
	n, err = io.ReadFull(f, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return b[:n], err
}

// ReadPrivate reads a file that passes CheckFile, at most limit bytes of it. What is checked is the open file, so that it cannot be exchanged in between.
func ReadPrivate(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		if isLink(err) {
			return nil, &Problem{path, "is a symbolic link", "name the file itself"}
		}
		return nil, fmt.Errorf("reading private file: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading private file: %w", err)
	}
	if err := checkFileInfo(path, info); err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("reading private file %s: it has %d bytes, and %d are allowed", path, info.Size(), limit)
	}
	b := make([]byte, limit+1)
	n := 0
	for n < len(b) {
		m, err := f.Read(b[n:])
		n += m
		if err != nil || m == 0 {
			break
		}
	}
	if int64(n) > limit {
		clear(b)
		return nil, fmt.Errorf("reading private file %s: more than %d bytes", path, limit)
	}
	return b[:n], nil
}

// quote makes a path safe to paste into a shell.
func quote(path string) string {
	for _, r := range path {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '/', r == '.', r == '-', r == '_', r == '+', r == ',', r == '@', r == '=':
		default:
			return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
		}
	}
	return path
}
