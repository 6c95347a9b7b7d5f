// Package sshdtest runs a real OpenSSH server for tests: a listener in the test, and one sshd -i for each connection, so that no port is taken twice. It needs openssh-server.
package sshdtest

import (
	"bufio"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
)

// Program is where Debian keeps it.
const Program = "/usr/sbin/sshd"

// Config is what New takes; the zero value is a server that lets one key in.
type Config struct {
	Extra string // lines of sshd_config
	Home  string // HOME of what runs; a folder of the test if empty
	Path  string // PATH of what runs; sshd's own if empty
	// Password lets the account in beside the key. Only root can have that: sshd finds it in an /etc/shadow of its own, in a mount namespace. The test is skipped for others.
	Password string
	Log      func(line string) // optional: each line that an sshd logs at DEBUG3
	// Between is given both ends of each connection in place of handing the client's to sshd: whatever goes through is its own choice. Optional.
	Between func(client, server net.Conn)
}

// Server is a running server.
type Server struct {
	Host    string // 127.0.0.1
	Port    int
	HostKey string // as in authorized_keys
	User    string
	Home    string
	Key     []byte // the private key that is let in, OpenSSH's form

	t      testing.TB
	cfg    Config
	config string
	listen net.Listener
	work   sync.WaitGroup

	mu       sync.Mutex
	running  map[*exec.Cmd]bool
	accepted int
	pipes    int
}

// NewKey makes a key pair: the private one in OpenSSH's form, and the public line.
func NewKey(t testing.TB) (private []byte, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block), strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(p)), "\n")
}

// New starts a server that ends with the test.
func New(t testing.TB, cfg Config) *Server {
	t.Helper()
	if _, err := os.Stat(Program); err != nil {
		t.Fatalf("%v: run .ci/setup", err)
	}
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &Server{Host: "127.0.0.1", User: me.Username, Home: cfg.Home, t: t, cfg: cfg, config: filepath.Join(dir, "sshd_config"), running: map[*exec.Cmd]bool{}}
	if s.Home == "" {
		s.Home = filepath.Join(dir, "home")
		if err := os.Mkdir(s.Home, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	passwords, root := "no", "prohibit-password"
	if cfg.Password != "" {
		passwords, root = "yes", "yes"
		s.writeShadow(filepath.Join(dir, "shadow"))
	}
	env := "SetEnv HOME=" + s.Home
	if cfg.Path != "" {
		env += " PATH=" + cfg.Path
	}
	host, hostLine := NewKey(t)
	s.HostKey = hostLine
	var public string
	s.Key, public = NewKey(t)
	for name, text := range map[string]string{
		"host_key": string(host), "authorized_keys": public + "\n",
		"sshd_config": "HostKey " + dir + "/host_key\nPidFile none\nAuthorizedKeysFile " + dir + "/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication " + passwords + "\nKbdInteractiveAuthentication no\n" +
			"PermitRootLogin " + root + "\nLogLevel DEBUG3\n" + env + "\n" + cfg.Extra + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.Port = s.listen.Addr().(*net.TCPAddr).Port
	s.work.Go(s.accept)
	t.Cleanup(s.Close)
	return s
}

// writeShadow writes a shadow(5) that knows the account's password.
func (s *Server) writeShadow(path string) {
	s.t.Helper()
	if os.Getuid() != 0 {
		s.t.Skip("sshd takes a password out of /etc/shadow, and only root can give it another one")
	}
	crypt := exec.Command("perl", "-e", `print crypt(<STDIN>, '$6$'.'salt'.$$)`)
	crypt.Stdin = strings.NewReader(s.cfg.Password)
	hash, err := crypt.Output()
	if err != nil || !strings.HasPrefix(string(hash), "$6$") {
		s.t.Fatalf("making a password's hash: %v", err)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "%s:%s:20000:0:99999:7:::\n", s.User, hash), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Authorize lets another private key's owner in.
func (s *Server) Authorize(private []byte) error {
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(s.config), "authorized_keys"), ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600)
}

// Address is host and port.
func (s *Server) Address() string { return s.listen.Addr().String() }

// Connections is how many were accepted so far.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Stop takes no further connection.
func (s *Server) Stop() { _ = s.listen.Close() }

// Kill ends every sshd that runs at once, as if the machine's network had gone for good. What they started goes on.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cmd := range s.running {
		_ = cmd.Process.Kill()
	}
}

// Close ends the server. It is called at the end of the test anyway.
func (s *Server) Close() {
	s.Stop()
	s.Kill()
	s.work.Wait()
}

func (s *Server) accept() {
	for {
		conn, err := s.listen.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.accepted++
		s.mu.Unlock()
		s.work.Go(func() { s.serve(conn.(*net.TCPConn)) })
	}
}

func (s *Server) serve(client *net.TCPConn) {
	end := client
	if s.cfg.Between != nil {
		ours, theirs, err := pair()
		if err != nil {
			s.t.Error(err)
			return
		}
		s.work.Go(func() { s.cfg.Between(client, ours) })
		end = theirs
	}
	file, err := end.File()
	_ = end.Close()
	if err != nil {
		s.t.Error(err)
		return
	}
	// With -e the log would be the command's standard error too. A pipe that is open for writing never ends by itself.
	s.mu.Lock()
	s.pipes++
	fifo := fmt.Sprintf("%s.log.%d", s.config, s.pipes)
	s.mu.Unlock()
	var log *os.File
	if err = syscall.Mkfifo(fifo, 0o600); err == nil {
		log, err = os.OpenFile(fifo, os.O_RDWR, 0)
	}
	if err != nil {
		s.t.Error(err)
		return
	}
	defer log.Close()
	cmd := exec.Command(Program, "-i", "-E", fifo, "-f", s.config)
	if s.cfg.Password != "" {
		shadow := filepath.Join(filepath.Dir(s.config), "shadow")
		cmd = exec.Command("unshare", append([]string{"--mount", "sh", "-c", `mount --bind "$0" /etc/shadow && exec "$@"`, shadow}, cmd.Args...)...)
	}
	cmd.Stdin, cmd.Stdout = file, file
	s.mu.Lock()
	if err = cmd.Start(); err == nil {
		s.running[cmd] = true
	}
	s.mu.Unlock()
	_ = file.Close()
	if err != nil {
		s.t.Error(err)
		return
	}
	var logged sync.WaitGroup
	logged.Go(func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if s.cfg.Log != nil {
				s.cfg.Log(lines.Text())
			}
		}
	})
	_ = cmd.Wait()
	_ = log.Close()
	logged.Wait()
	s.mu.Lock()
	delete(s.running, cmd)
	s.mu.Unlock()
}

// pair is a TCP connection to ourselves.
func pair() (ours, theirs *net.TCPConn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	b, err := l.Accept()
	if err != nil {
		_ = a.Close()
		return nil, nil, fmt.Errorf("accepting our own connection: %w", err)
	}
	return a.(*net.TCPConn), b.(*net.TCPConn), nil
}
