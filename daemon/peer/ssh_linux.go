package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sshServers are the names that SSH servers have as processes of other users.
var sshServers = []string{"sshd", "sshd-session", "sshd-auth", "dropbear"}

// Login is a login by SSH that came from this machine, or of which that cannot be told.
type Login struct {
	Here    bool      // the login manager says that it came from this machine
	Clients []Process // what has the other end of a connection to a server of root's on this machine, and so could be the client. Processes of our user only
	Hidden  bool      // a client of our user is there, and cannot be told
	Others  bool      // another user has such a connection
}

// ThroughSSH says how a process came here, where it came by SSH, and nil where it did not, or where the login manager says that it came from another machine.
//
// The kernel does not say which connection a login has: sshd closes itself to others. So every connection counts that leads from a process of our user to a server of root's here.
func (id *Identifier) ThroughSSH(lineage []Process) (*Login, error) {
	byServer := slices.ContainsFunc(lineage[1:], func(p Process) bool { return slices.Contains(sshServers, othersName(p.PID)) })
	group, err := controlGroup(lineage[0].PID)
	if err != nil {
		return nil, err
	}
	bySession, from := loginSession(id.cfg.Sessions, group)
	if !byServer && !bySession {
		return nil, nil
	}
	l := &Login{}
	switch {
	case !bySession, from == "":
	case isHere(from):
		l.Here = true
	default:
		if _, err := netip.ParseAddr(from); err == nil {
			return nil, nil
		}
	}
	sockets, err := connections()
	if err != nil {
		return nil, fmt.Errorf("looking for SSH connections within this machine: %w", err)
	}
	for _, c := range clientsOf(sockets, 0) {
		if int(c.uid) != os.Getuid() {
			l.Others = true
			continue
		}
		pid, err := holderOf(c.inode)
		if err != nil {
			l.Hidden = true
			continue
		}
		if pid == os.Getpid() { // one of ours to a target on this machine
			continue
		}
		if p, err := readProcess(pid); err != nil {
			l.Hidden = true
		} else if !slices.ContainsFunc(l.Clients, func(q Process) bool { return q.PID == p.PID && q.Start == p.Start }) {
			l.Clients = append(l.Clients, p)
		}
	}
	return l, nil
}

// loginSession says whether a control group is of a login by SSH, and from which host, by what the login manager wrote (systemd-logind(8)). Only root writes there, and only root moves a process out
// of a login's group or into it.
func loginSession(folder, group string) (ssh bool, from string) {
	session := sessionOf(group)
	if session == "" {
		return false, ""
	}
	file := filepath.Join(folder, session)
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil || st.Uid != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, ""
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false, ""
	}
	return sshLogin(string(text))
}

// logins are the groups that the login manager makes. Beneath user@N.service a user can make one by any name.
var logins = regexp.MustCompile(`^/user\.slice/user-[0-9]+\.slice/session-([0-9a-zA-Z]+)\.scope(?:/|$)`)

func sessionOf(group string) string {
	if m := logins.FindStringSubmatch(group); m != nil {
		return m[1]
	}
	return ""
}

func sshLogin(text string) (ssh bool, from string) {
	for line := range strings.Lines(text) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "SERVICE":
			ssh = slices.Contains(sshServers, value) || value == "ssh"
		case "REMOTE_HOST":
			from = strings.Trim(value, `"`)
		}
	}
	return ssh, from
}

// isHere says whether a host, as the login manager names it, is this machine.
func isHere(host string) bool {
	if host == "localhost" || strings.HasPrefix(host, "localhost.") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return true
	}
	ours, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(ours, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == addr
	})
}

// socket is one end of a TCP connection.
type socket struct {
	own, other netip.AddrPort
	uid, inode uint32
}

// clientsOf returns the ends whose other end is a socket of that user's in this machine.
func clientsOf(sockets []socket, server uint32) []socket {
	type pair struct{ own, other netip.AddrPort }
	ends := make(map[pair]socket, len(sockets))
	for _, s := range sockets {
		ends[pair{s.own, s.other}] = s
	}
	var clients []socket
	for _, s := range sockets {
		if end, ok := ends[pair{s.other, s.own}]; ok && end.uid == server && s.uid != server && s.inode != 0 {
			clients = append(clients, s)
		}
	}
	return clients
}

// connections asks the kernel for every TCP connection (sock_diag(7)).
func connections() ([]socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var all []socket
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		msg := make([]byte, unix.NLMSG_HDRLEN+diagRequestSize)
		binary.NativeEndian.PutUint32(msg[0:], uint32(len(msg)))
		binary.NativeEndian.PutUint16(msg[4:], sockDiagByFamily)
		binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
		req := msg[unix.NLMSG_HDRLEN:]
		req[0], req[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(req[4:], 0xffffffff&^(1<<unix.BPF_TCP_LISTEN))
		if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, err
		}
		if all, err = appendSockets(all, fd); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// appendSockets reads one dump to its end.
func appendSockets(all []socket, fd int) ([]socket, error) {
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, err
		}
		for rest := buf[:n]; len(rest) >= unix.NLMSG_HDRLEN; {
			size := int(binary.NativeEndian.Uint32(rest))
			if size < unix.NLMSG_HDRLEN || size > len(rest) {
				return nil, errors.New("the kernel's answer has another form")
			}
			body := rest[unix.NLMSG_HDRLEN:size]
			switch binary.NativeEndian.Uint16(rest[4:]) {
			case unix.NLMSG_DONE:
				return all, nil
			case unix.NLMSG_ERROR:
				if len(body) < 4 {
					return nil, errors.New("the kernel's answer has another form")
				}
				return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			case sockDiagByFamily:
				if len(body) < diagMessageSize {
					return nil, errors.New("the kernel's answer has another form")
				}
				all = append(all, socketOf(body))
			}
			rest = rest[min(len(rest), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
		}
	}
}

// socketOf reads struct inet_diag_msg.
func socketOf(body []byte) socket {
	at := func(port, addr int) netip.AddrPort {
		var a netip.Addr
		if body[0] == unix.AF_INET {
			a = netip.AddrFrom4([4]byte(body[addr : addr+4]))
		} else {
			a = netip.AddrFrom16([16]byte(body[addr : addr+16])).Unmap()
		}
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(body[port:]))
	}
	return socket{own: at(4, 8), other: at(6, 24), uid: binary.NativeEndian.Uint32(body[64:]), inode: binary.NativeEndian.Uint32(body[68:])}
}
