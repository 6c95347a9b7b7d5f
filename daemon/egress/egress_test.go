package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"singlepass.dev/daemon/egress"
)

// dialer records what is dialled, and lets every connection fail.
func dialer(answers ...string) (*egress.Dialer, *[]string) {
	dialled := &[]string{}
	return egress.New(egress.Config{
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			var all []netip.Addr
			for _, a := range answers {
				all = append(all, netip.MustParseAddr(a))
			}
			return all, nil
		},
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			*dialled = append(*dialled, address)
			return nil, errors.New("nobody is there")
		},
	}), dialled
}

func TestSomeAddressesAreNeverReached(t *testing.T) {
	for _, a := range []string{
		"169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%1", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192",
		"0.0.0.0", "0.1.2.3", "::", "255.255.255.255", "240.0.0.1", "224.0.0.1", "ff02::1",
		"::ffff:169.254.169.254", "::ffff:0.0.0.0", "::169.254.169.254", "64:ff9b::169.254.169.254", "64:ff9b::100.100.100.200", "64:ff9b:1::169.254.169.254",
		"2002:a9fe:a9fe::1",                      // 6to4 of 169.254.169.254
		"2001:0:a9fe:a9fe::",                     // Teredo through that server
		"2001:0:808:808:0:0:5601:5601",           // Teredo to that client: each bit turned
		"2001:db8::5efe:169.254.169.254",         // ISATAP
		"2001:db8::200:5efe:169.254.169.254",     // ISATAP with the universal bit
		"64:ff9b::a9fe:a9fe", "::ffff:a9fe:a9fe", // the same, written otherwise
	} {
		for _, private := range []bool{false, true} {
			d, dialled := dialer(a)
			_, err := d.Dial(t.Context(), "name.example", "443", private)
			if err == nil || len(*dialled) != 0 || errors.Is(err, egress.ErrPrivate) {
				t.Errorf("%s by name, private %v: %v, dialled %v", a, private, err, *dialled)
			}
			if _, err := d.Dial(t.Context(), a, "443", private); err == nil || len(*dialled) != 0 {
				t.Errorf("%s: %v, dialled %v", a, err, *dialled)
			}
		}
	}
}

func TestANameLeadsIntoAPrivateNetworkOnlyByLeave(t *testing.T) {
	for _, a := range []string{"10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "127.0.0.1", "127.8.8.8", "::1", "fd12::1", "fec0::1", "64:ff9b::10.0.0.1", "2002:a00:1::", "64:ff9b:1::8.8.8.8", "::ffff:10.0.0.1"} {
		d, dialled := dialer(a)
		if _, err := d.Dial(t.Context(), "name.example", "443", false); !errors.Is(err, egress.ErrPrivate) || !strings.Contains(err.Error(), "--allow-private") || len(*dialled) != 0 {
			t.Errorf("%s without leave: %v, dialled %v", a, err, *dialled)
		}
		if _, _ = d.Dial(t.Context(), "name.example", "443", true); len(*dialled) != 1 {
			t.Errorf("%s was not dialled with leave", a)
		}
		// Whoever writes the address, or localhost, means it.
		if _, _ = d.Dial(t.Context(), a, "443", false); len(*dialled) != 2 {
			t.Errorf("%s was not dialled by its address", a)
		}
		for _, local := range []string{"localhost", "LOCALHOST", "x.localhost"} {
			*dialled = nil
			if _, _ = d.Dial(t.Context(), local, "443", false); len(*dialled) != 1 {
				t.Errorf("%s was not dialled as %s", a, local)
			}
		}
	}
	d, dialled := dialer("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "8.8.8.8")
	if _, err := d.Dial(t.Context(), "name.example", "443", false); err == nil || len(*dialled) != 3 {
		t.Errorf("public addresses: %v, dialled %v", err, *dialled)
	}
}

func TestOfSeveralAddressesOnlyTheAllowedOnesAreDialled(t *testing.T) {
	d, dialled := dialer("169.254.169.254", "10.0.0.1", "8.8.8.8")
	if _, err := d.Dial(t.Context(), "name.example", "443", false); err == nil || !slices.Equal(*dialled, []string{"8.8.8.8:443"}) {
		t.Errorf("%v, dialled %v", err, *dialled)
	}
	d, _ = dialer()
	if _, err := d.Dial(t.Context(), "name.example", "443", false); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("a name without addresses: %v", err)
	}
}
