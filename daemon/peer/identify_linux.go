package peer

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/harden"
)

// maxChain bounds every walk to the root of the process tree.
const maxChain = 64

// Identify says which agent is behind a connection of agent.sock: the peer itself, or behind the bridge its parent.
func (id *Identifier) Identify(conn *net.UnixConn) (*Identity, error) {
	pid, fd, err := peerOf(conn)
	if err != nil {
		return nil, err
	}
	if id.hasBridgesGroup(conn) {
		bridge, err := id.holdBridge(pid, fd)
		if err != nil {
			return nil, err
		}
		return id.behindBridge(bridge)
	}
	held, err := id.hold(pid, fd)
	if err != nil {
		return nil, err
	}
	isBridge, err := id.isBridge(held)
	if err != nil {
		held.close()
		return nil, err
	}
	if !isBridge {
		return id.identity(held, ViaSocket, nil)
	}
	return id.behindBridge(held)
}

// IdentifyCaller says which process is behind a connection, and takes a bridge for what it is. It is for the operator's socket.
func (id *Identifier) IdentifyCaller(conn *net.UnixConn) (*Identity, error) {
	pid, fd, err := peerOf(conn)
	if err != nil {
		return nil, err
	}
	held, err := id.hold(pid, fd)
	if err != nil {
		return nil, err
	}
	return id.identity(held, ViaSocket, nil)
}

// ProcessOf says which process is behind a connection, without its digest, and without its executable where that cannot be read.
func (id *Identifier) ProcessOf(conn *net.UnixConn) (Process, error) {
	pid, fd, err := peerOf(conn)
	if err != nil {
		return Process{}, err
	}
	h := &held{fd: fd}
	defer h.close()
	if h.Process, err = readProcess(pid); err != nil {
		return Process{}, err
	}
	_ = h.readExe()
	return h.Process, h.alive()
}

// Ancestors returns the ancestors of a process, nearest first, up to the first of the system. It is for people to look at: one that does not let its executable be read is in the
// list without it, and the list ends where one has gone meanwhile. What decides uses Lineage.
func (id *Identifier) Ancestors(pid int) ([]Process, error) {
	child := Process{PID: pid}
	if err := child.readStat(); err != nil {
		return nil, err
	}
	var chain []Process
	for child.PPID > 0 && len(chain) < maxChain {
		parent := Process{PID: child.PPID}
		if _, err := parent.readPlace(); err != nil || parent.Start > child.Start {
			return chain, nil
		}
		parent.place()
		if err := parent.readExe(); err == nil {
			parent.readScript(readArgs(parent.PID))
			parent.OtherFile = !sameFile(parent.Exe, parent)
		}
		chain = append(chain, parent)
		child = parent
	}
	return chain, nil
}

// maxLineage bounds a lineage. Whoever nests processes deeper than this has something to hide.
const maxLineage = 4096

// Lineage returns a process and all its ancestors, nearest first: where each stands in the tree, and nothing else. It fails where the process is gone, or where the tree
// cannot be told, so that who decides by it can refuse. A process that the system hides from us (proc(5), hidepid) belongs to another user; the lineage ends below it.
func (id *Identifier) Lineage(pid int) ([]Process, error) {
	for range 5 {
		chain, settled, err := lineage(pid)
		if err != nil || settled {
			return chain, err
		}
	}
	return nil, fmt.Errorf("reading the lineage of process %d: it changed again and again", pid)
}

func lineage(pid int) (chain []Process, settled bool, err error) {
	child := Process{PID: pid}
	if err := child.readStat(); err != nil {
		return nil, false, err
	}
	chain = append(chain, child)
	for child.PPID > 0 {
		if len(chain) == maxLineage {
			return nil, false, fmt.Errorf("reading the lineage of process %d: more than %d processes are nested", pid, maxLineage)
		}
		parent := Process{PID: child.PPID}
		_, err := parent.readPlace()
		// A parent that ends gives its children to another one. Only while the child still names it is it the parent.
		again := Process{PID: child.PID}
		if _, gone := again.readPlace(); gone != nil || again.PPID != child.PPID || again.Start != child.Start {
			return nil, false, nil
		}
		if err != nil {
			return chain, true, nil
		}
		chain = append(chain, parent)
		child = parent
	}
	return chain, true, nil
}

// IdentifyTCP says which process has the other end of a loopback connection, given as the server sees it.
func (id *Identifier) IdentifyTCP(local, remote netip.AddrPort) (*Identity, error) {
	if !local.Addr().IsLoopback() || !remote.Addr().IsLoopback() {
		return nil, fmt.Errorf("identifying %s: %w: it is not on this machine", remote, ErrCannotTell)
	}
	inode, uid, err := socketOwner(remote, local)
	if err != nil {
		return nil, fmt.Errorf("identifying %s: %w", remote, err)
	}
	if uid != os.Getuid() {
		return nil, fmt.Errorf("identifying %s: it belongs to user %d", remote, uid)
	}
	pid, err := holderOf(inode)
	if err != nil {
		return nil, fmt.Errorf("identifying %s: %w", remote, err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("identifying %s: %w", remote, err)
	}
	held, err := id.hold(pid, fd)
	if err != nil {
		return nil, err
	}
	// The pid could have passed to another process before it was held; that one does not have the socket.
	if !holds(pid, inode) {
		held.close()
		return nil, fmt.Errorf("identifying %s: the process that held the socket is gone", remote)
	}
	return id.identity(held, ViaHTTP, nil)
}

// peerOf asks the kernel for the process that connected.
func peerOf(conn *net.UnixConn) (pid, pidfd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, fmt.Errorf("asking who connected: %w", err)
	}
	var cred *unix.Ucred
	var credErr, fdErr error
	pidfd = -1
	err = raw.Control(func(fd uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr == nil {
			pidfd, fdErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		}
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, 0, fmt.Errorf("asking who connected: %w", err)
	}
	if int(cred.Uid) != os.Getuid() {
		if pidfd >= 0 && fdErr == nil {
			_ = unix.Close(pidfd)
		}
		return 0, 0, fmt.Errorf("asking who connected: process %d belongs to user %d, not to %d", cred.Pid, cred.Uid, os.Getuid())
	}
	if fdErr == nil {
		unix.CloseOnExec(pidfd)
		return int(cred.Pid), pidfd, nil
	}
	if !errors.Is(fdErr, unix.ENOPROTOOPT) {
		return 0, 0, fmt.Errorf("asking who connected: process %d: %w", cred.Pid, fdErr)
	}
	pidfd, err = openPeer(int(cred.Pid), time.Now())
	return int(cred.Pid), pidfd, err
}

// openPeer gets a pidfd where the kernel has no SO_PEERPIDFD (before Linux 6.5). A process that began after we had the connection cannot be the one that made it. What is left is
// the time between its connect and our accept, in which its pid would have to come round.
func openPeer(pid int, accepted time.Time) (int, error) {
	before, err := readProcess(pid)
	if err != nil {
		return -1, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("holding process %d: %w", pid, err)
	}
	after, err := readProcess(pid)
	if err == nil && (after.Start != before.Start || after.Began.After(accepted.Add(time.Second))) {
		err = fmt.Errorf("holding process %d: it is another process by now", pid)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// held is a process with a pidfd on it.
type held struct {
	Process
	args []string
	fd   int
}

func (h *held) close() { _ = unix.Close(h.fd) }

// alive proves that the pid still means the process that is held, and so did while /proc was read.
func (h *held) alive() error {
	if err := unix.PidfdSendSignal(h.fd, 0, nil, 0); err != nil {
		return fmt.Errorf("process %d is gone: %w", h.PID, err)
	}
	return nil
}

// hold reads a process under a pidfd, which it takes over.
func (id *Identifier) hold(pid, fd int) (*held, error) {
	h := &held{fd: fd}
	err := func() error {
		var err error
		if h.Process, err = readProcess(pid); err != nil {
			return err
		}
		if h.UID != os.Getuid() {
			return fmt.Errorf("process %d belongs to user %d, not to %d", pid, h.UID, os.Getuid())
		}
		if err := h.readExe(); err != nil {
			return err
		}
		h.args = readArgs(pid)
		h.readScript(h.args)
		return h.alive()
	}()
	if err != nil {
		h.close()
		return nil, fmt.Errorf("identifying a peer: %w", err)
	}
	return h, nil
}

// hasBridgesGroup says that the connection was made under the group that the kernel gives to the installed spctl and to nothing else of this user. Such a bridge is closed to others, us
// included, and nobody traced it when it was started.
func (id *Identifier) hasBridgesGroup(conn *net.UnixConn) bool {
	gid, sealed := harden.GroupOf(id.cfg.Bridge)
	if !sealed {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	has := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		has = err == nil && int(cred.Gid) == gid
	})
	return err == nil && has
}

// holdBridge reads a bridge whose executable is known by its group. It takes over the pidfd.
func (id *Identifier) holdBridge(pid, fd int) (*held, error) {
	h := &held{fd: fd}
	err := func() error {
		var err error
		if h.Process, err = readProcess(pid); err != nil {
			return err
		}
		if h.UID != os.Getuid() {
			return fmt.Errorf("process %d belongs to user %d, not to %d", pid, h.UID, os.Getuid())
		}
		h.Exe, h.args = id.cfg.Bridge, readArgs(pid)
		return h.alive()
	}()
	if err != nil {
		h.close()
		return nil, fmt.Errorf("identifying a bridge: %w", err)
	}
	return h, nil
}

// isBridge says that the process runs the installed spctl as a bridge: that very file, not one of the same content. A copy is its owner's, who can write to it and keep it from closing itself.
func (id *Identifier) isBridge(h *held) (bool, error) {
	if id.cfg.Bridge == "" || !slices.Contains(h.args[min(1, len(h.args)):], "mcp") {
		return false, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(id.cfg.Bridge, &st); err == nil && st.Dev == h.Device && st.Ino == h.Inode {
		return true, nil
	}
	if h.Exe == id.cfg.Bridge {
		return false, fmt.Errorf("identifying a peer: process %d runs another %s than the installed one; restart the agent's MCP server", h.PID, h.Exe)
	}
	return false, nil
}

// behindBridge finds the agent that started the bridge, past launchers.
func (id *Identifier) behindBridge(bridge *held) (*Identity, error) {
	through := []Process{bridge.Process}
	child := bridge
	for len(through) < maxChain {
		parent, err := id.parentOf(child)
		child.close()
		if err != nil {
			return nil, fmt.Errorf("identifying the agent behind bridge %d: %w", bridge.PID, err)
		}
		if !launcher(parent.Process, parent.args) {
			return id.identity(parent, ViaBridge, through)
		}
		through = append(through, parent.Process)
		child = parent
	}
	child.close()
	return nil, fmt.Errorf("identifying the agent behind bridge %d: there are too many launchers", bridge.PID)
}

func (id *Identifier) parentOf(child *held) (*held, error) {
	fd, err := unix.PidfdOpen(child.PPID, 0)
	if err != nil {
		return nil, fmt.Errorf("holding its parent %d: %w", child.PPID, err)
	}
	parent, err := id.hold(child.PPID, fd)
	if err != nil {
		return nil, err
	}
	err = func() error {
		if parent.Start > child.Start {
			return fmt.Errorf("process %d began after its child", parent.PID)
		}
		if base := filepath.Base(parent.Exe); parent.PID == 1 || base == "systemd" || base == "init" {
			return fmt.Errorf("its agent is gone, or hid behind %s; start the bridge from the agent itself", base)
		}
		// Had the child been given to another parent meanwhile, the one that is held would be the wrong one.
		var again Process
		again.PID = child.PID
		if err := again.readStat(); err != nil {
			return err
		}
		if again.PPID != parent.PID || again.Start != child.Start {
			return fmt.Errorf("process %d has another parent by now", child.PID)
		}
		return child.alive()
	}()
	if err != nil {
		parent.close()
		return nil, err
	}
	return parent, nil
}

// identity finishes an identity. It takes over the held process, whose pidfd lives as long as the process is watched.
func (id *Identifier) identity(agent *held, via string, through []Process) (*Identity, error) {
	digest, err := id.digests.of(procPath(agent.PID, "exe"))
	if err != nil {
		agent.close()
		return nil, fmt.Errorf("identifying process %d: %w", agent.PID, err)
	}
	agent.Digest = digest
	chain, err := id.Ancestors(agent.PID)
	if err != nil {
		agent.close()
		return nil, fmt.Errorf("identifying process %d: %w", agent.PID, err)
	}
	if err := agent.alive(); err != nil {
		agent.close()
		return nil, fmt.Errorf("identifying a peer: %w", err)
	}
	run := RunID(agent.Process)
	w, err := id.watch(run, agent)
	if err != nil {
		return nil, err
	}
	process := agent.Process
	process.Script, process.ScriptDigest = w.first.script, w.first.scriptDigest
	return &Identity{
		Run: run, Actor: w.first.actor, Agent: process, Chain: chain, Through: through, Via: via,
		Assurance: w.first.assurance, Package: w.first.pkg, Contains: w.first.contains, Doubts: texts(w.first.doubts), DoubtsSaid: said(w.first.doubts),
		Check: func() error { return w.check(process) },
		Ended: w.ended,
	}, nil
}

// program is what a process was found to run when it was first seen.
type program struct {
	actor        string
	assurance    Assurance
	pkg          string
	script       string
	scriptDigest string
	contains     string
	doubts       []doubt
}

// programOf finds out what a held process runs, which may read many files.
func (id *Identifier) programOf(h *held) program {
	o := id.originOf(h)
	p := program{actor: cmp.Or(o.actor, "exe:"+h.Exe), pkg: o.pkg, doubts: append(o.doubts, doubtsOf(h)...), assurance: UserOwned}
	if name, ok := strings.CutPrefix(o.pkg, "deb:"); ok {
		p.actor = "deb:" + name
	}
	system := o.system
	if h.Script != "" {
		p.script, p.actor = h.Script, "script:"+h.Script
		if p.contains = id.packageOf(h.Script); p.contains == "" || !systemOwned(h.Script) {
			p.contains = ownerOfScript(h.Script)
		}
		system = system && systemOwned(h.Script)
		var err error
		if p.scriptDigest, err = id.digests.of(h.Script); err != nil {
			p.doubts = append(p.doubts, doubt{api.Say(api.DoubtUnreadable), "its script cannot be read"})
		}
	}
	switch {
	case len(p.doubts) > 0:
		p.assurance = CannotTell
	case system:
		p.assurance = SystemOwned
	}
	return p
}

// check proves that the process lives and runs the same executable.
func (w *watched) check(p Process) error {
	select {
	case <-w.ended:
		return fmt.Errorf("process %d has ended", p.PID)
	default:
	}
	// The pidfd holds the process, so its start time is what it was; what an exec changes is the file.
	var exe unix.Stat_t
	if err := unix.Stat(procPath(p.PID, "exe"), &exe); err != nil {
		return fmt.Errorf("looking at the executable of process %d: %w", p.PID, err)
	}
	if err := w.alive(); err != nil {
		return fmt.Errorf("checking process %d: %w", p.PID, err)
	}
	if exe.Dev != p.Device || exe.Ino != p.Inode {
		now := Process{PID: p.PID}
		_ = now.readExe() // only for the message
		return fmt.Errorf("process %d has become another program: it ran %s and now runs %s", p.PID, p.Exe, now.Exe)
	}
	return nil
}

func texts(list []doubt) (out []string) {
	for _, d := range list {
		out = append(out, d.text)
	}
	return out
}

func said(list []doubt) (out []api.Said) {
	for _, d := range list {
		out = append(out, d.said)
	}
	return out
}
