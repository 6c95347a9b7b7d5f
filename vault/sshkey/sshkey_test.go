package sshkey_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"singlepass.dev/vault/sshkey"
)

// keygen runs the real ssh-keygen and returns the file that it wrote.
func keygen(t *testing.T, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if len(args) > 3 && args[1] == "rsa" && args[3] == "2048" { // making one takes long, so that all are the same in another form
		pair := rsaPair()
		for i, suffix := range []string{"", ".pub"} {
			if err := os.WriteFile(file+suffix, pair[i], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command("ssh-keygen", append([]string{"-q", "-p", "-P", "", "-f", file}, args[4:]...)...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
		return file
	}
	out, err := exec.Command("ssh-keygen", append([]string{"-q", "-f", file, "-C", "somebody@example"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	return file
}

var rsaPair = sync.OnceValue(func() (pair [2][]byte) {
	dir, err := os.MkdirTemp("", "sshkey-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-C", "somebody@example", "-f", dir+"/key").CombinedOutput(); err != nil {
		panic(string(out))
	}
	for i, suffix := range []string{"", ".pub"} {
		if pair[i], err = os.ReadFile(dir + "/key" + suffix); err != nil {
			panic(err)
		}
	}
	return pair
})

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const passphrase = "canary-not-a-secret"

func TestEveryKeyThatSSHKeygenMakesIsImported(t *testing.T) {
	for _, c := range []struct {
		name      string
		args      []string
		encrypted bool
	}{
		{"Ed25519", []string{"-t", "ed25519", "-N", ""}, false},
		{"Ed25519, encrypted", []string{"-t", "ed25519", "-N", passphrase}, true},
		{"ECDSA 256", []string{"-t", "ecdsa", "-b", "256", "-N", ""}, false},
		{"ECDSA 384, encrypted", []string{"-t", "ecdsa", "-b", "384", "-N", passphrase}, true},
		{"ECDSA 521", []string{"-t", "ecdsa", "-b", "521", "-N", ""}, false},
		{"RSA", []string{"-t", "rsa", "-b", "2048", "-N", ""}, false},
		{"RSA, encrypted", []string{"-t", "rsa", "-b", "2048", "-N", passphrase}, true},
		{"RSA as PEM, encrypted", []string{"-t", "rsa", "-b", "2048", "-m", "PEM", "-N", passphrase}, true},
		{"ECDSA as PEM", []string{"-t", "ecdsa", "-m", "PEM", "-N", ""}, false},
		{"RSA as PKCS #8", []string{"-t", "rsa", "-b", "2048", "-m", "PKCS8", "-N", ""}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := keygen(t, c.args...)
			given := ""
			if c.encrypted {
				if _, err := sshkey.Import(read(t, file), nil); !errors.Is(err, sshkey.ErrPassphraseNeeded) {
					t.Errorf("without the passphrase: %v", err)
				}
				if _, err := sshkey.Import(read(t, file), []byte("wrong")); !errors.Is(err, sshkey.ErrPassphraseWrong) {
					t.Errorf("with a wrong passphrase: %v", err)
				}
				given = passphrase
			}
			kept, err := sshkey.Import(read(t, file), []byte(given))
			if err != nil {
				t.Fatal(err)
			}
			public, err := sshkey.PublicKey(kept)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.TrimSuffix(string(read(t, file+".pub")), " somebody@example\n"); public != want {
				t.Errorf("the public key is %s, not %s", public, want)
			}
			if again, err := sshkey.Import(kept, nil); err != nil {
				t.Errorf("what is kept cannot be imported again: %v, %d bytes", err, len(again))
			}
		})
	}
}

func TestAKeyThatProtectsNothingOrIsNoneIsRefusedWithTheRemedy(t *testing.T) {
	short := keygen(t, "-t", "rsa", "-b", "1024", "-N", "")
	public := keygen(t, "-t", "ed25519", "-N", "") + ".pub"
	encrypted := keygen(t, "-t", "rsa", "-b", "2048", "-m", "PKCS8", "-N", passphrase)
	for name, c := range map[string]struct {
		key  []byte
		want string
	}{
		"RSA of 1024 bits":  {read(t, short), "ssh-keygen -t ed25519"},
		"a public key":      {read(t, public), "private one"},
		"encrypted PKCS #8": {read(t, encrypted), "ssh-keygen -p"},
		"PuTTY's form":      {[]byte("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n"), "puttygen"},
		"text":              {[]byte("canary-not-a-secret"), "ssh-keygen wrote"},
		"nothing":           {nil, "ssh-keygen wrote"},
	} {
		_, err := sshkey.Import(c.key, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}

func TestACertificateSignsWhileItIsValid(t *testing.T) {
	ca, key := keygen(t, "-t", "ed25519", "-N", ""), keygen(t, "-t", "ed25519", "-N", "")
	out, err := exec.Command("ssh-keygen", "-q", "-s", ca, "-I", "id", "-n", "deploy", "-V", "20300101000000Z:20300102000000Z", key+".pub").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cert, err := sshkey.Certificate(string(read(t, key+"-cert.pub")))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := sshkey.Import(read(t, key), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sshkey.CertifiesKey(cert, kept); err != nil {
		t.Error(err)
	}
	s, _, err := sshkey.Open(kept, cert, time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	if err != nil || s.PublicKey().Type() != "ssh-ed25519-cert-v01@openssh.com" {
		t.Errorf("%v, %v", s, err)
	}
	for _, at := range []time.Time{time.Date(2029, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)} {
		if _, _, err := sshkey.Open(kept, cert, at); err == nil || !strings.Contains(err.Error(), "2030-01-02T00:00:00Z") {
			t.Errorf("at %s: %v", at, err)
		}
	}
	other, err := sshkey.Import(read(t, ca), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sshkey.CertifiesKey(cert, other); err == nil {
		t.Error("it certifies another key")
	}
	if _, err := sshkey.Certificate(string(read(t, key+".pub"))); err == nil {
		t.Error("a public key was taken for a certificate")
	}
}

func TestHostKeysAreReadFromKnownHostsAndPublicKeys(t *testing.T) {
	line := func(file string) string {
		return strings.TrimSuffix(string(read(t, file+".pub")), " somebody@example\n")
	}
	one, two := line(keygen(t, "-t", "ed25519", "-N", "")), line(keygen(t, "-t", "ecdsa", "-N", ""))
	known := filepath.Join(t.TempDir(), "known_hosts")
	text := "# mine\n\ndb1.example,10.0.0.1 " + one + "\ndb1.example " + two + " comment\n[db2.example]:2222 " + two + "\n"
	if err := os.WriteFile(known, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	hashed := known + ".hashed"
	if err := os.WriteFile(hashed, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ssh-keygen", "-H", "-f", hashed).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, file := range []string{known, hashed} {
		for _, c := range []struct {
			host string
			port int
			want int
		}{{"db1.example", 22, 2}, {"10.0.0.1", 22, 1}, {"db2.example", 2222, 1}, {"db2.example", 22, 0}, {"db1.example", 2222, 0}} {
			keys, err := sshkey.ReadHostKeys(read(t, file), c.host, c.port)
			if len(keys) != c.want || (err == nil) != (c.want > 0) {
				t.Errorf("%s of %s: %d keys, %v", c.host, filepath.Base(file), len(keys), err)
			}
		}
	}
	if keys, err := sshkey.ReadHostKeys([]byte(two+" root@db\n"+one+"\n"), "any.example", 22); err != nil || len(keys) != 2 {
		t.Errorf("public keys: %v, %v", keys, err)
	}
	for name, text := range map[string]string{
		"revoked": "@revoked db1.example " + one, "an authority": "@cert-authority db1.example " + one, "nothing": "\n", "text": "hello there\n",
	} {
		if keys, err := sshkey.ReadHostKeys([]byte(text), "db1.example", 22); err == nil {
			t.Errorf("%s: read %v", name, keys)
		}
	}
	fingerprint, err := sshkey.Fingerprint(one)
	if err != nil || !strings.HasPrefix(fingerprint, "SHA256:") {
		t.Error(fingerprint, err)
	}
}
