package material_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"singlepass.dev/vault/material"
)

func keygen(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ssh-keygen", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ssh-keygen %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnSSHKeysFileIsToldAsSSHKeygenTellsIt(t *testing.T) {
	for _, kind := range []string{"ed25519", "ecdsa -b 256", "ecdsa -b 384", "ecdsa -b 521", "rsa -b 2048"} {
		for _, form := range []string{"", "PEM", "PKCS8"} {
			for _, passphrase := range []string{"", "canary-not-a-secret"} {
				if form == "PEM" && kind == "ed25519" || form == "PKCS8" && passphrase != "" || form == "PKCS8" && kind == "ed25519" {
					continue // ssh-keygen writes OpenSSH's form, or one that cannot be taken
				}
				t.Run(fmt.Sprintf("%s %s encrypted=%v", kind, form, passphrase != ""), func(t *testing.T) {
					t.Parallel()
					file := filepath.Join(t.TempDir(), "key")
					args := append([]string{"-q", "-f", file, "-C", "somebody at example", "-N", passphrase, "-t"}, strings.Fields(kind)...)
					if form != "" {
						args = append(args, "-m", form)
					}
					keygen(t, append(args, "-a", "1")...)
					private, public := read(t, file), read(t, file+".pub")
					want := strings.Fields(keygen(t, "-lf", file+".pub"))[1]
					got, err := material.LookAtSSHKey(private, public)
					if err != nil || got.Fingerprint != want || got.Comment != "somebody at example" || got.Encrypted != (passphrase != "") || got.Type != strings.Fields(string(public))[0] {
						t.Errorf("%+v, %v; its fingerprint is %s", got, err, want)
					}
					alone, err := material.LookAtSSHKey(private, nil)
					if err != nil || alone.Encrypted != got.Encrypted || alone.Fingerprint != want && (form != "PEM" || passphrase == "") {
						t.Errorf("without its .pub file: %+v, %v", alone, err)
					}
					// The .pub file of another key is not believed where the file itself says which key it is.
					other := filepath.Join(t.TempDir(), "other")
					keygen(t, "-q", "-f", other, "-C", "another", "-N", "", "-t", "ed25519")
					if lied, err := material.LookAtSSHKey(private, read(t, other+".pub")); alone.Fingerprint != "" && (err != nil || lied.Fingerprint != want || lied.Comment == "another") {
						t.Errorf("beside the .pub file of another key: %+v, %v", lied, err)
					}
				})
			}
		}
	}
}

func TestWhatIsNoSSHKeyThatCanBeTakenSaysWhy(t *testing.T) {
	dir := t.TempDir()
	keygen(t, "-q", "-f", dir+"/short", "-N", "", "-t", "rsa", "-b", "1024")
	keygen(t, "-q", "-f", dir+"/pkcs8", "-N", "canary-not-a-secret", "-t", "rsa", "-m", "PKCS8")
	keygen(t, "-q", "-f", dir+"/whole", "-N", "", "-t", "ed25519")
	whole := read(t, dir+"/whole")
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"a public key":       {read(t, dir+"/whole.pub"), "no private key"},
		"a configuration":    {[]byte("Host *\n  User canary\n"), "no private key"},
		"nothing":            {nil, "no private key"},
		"a short RSA key":    {read(t, dir+"/short"), "1024 bits"},
		"encrypted PKCS #8":  {read(t, dir+"/pkcs8"), "encrypted PKCS #8"},
		"PuTTY's form":       {[]byte("PuTTY-User-Key-File-3: ssh-ed25519\n"), "puttygen"},
		"a cut key":          {whole[:len(whole)/2], "cannot be read"},
		"a key without body": {[]byte("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"), "not whole"},
		"PEM that is none":   {[]byte("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"), "cannot be read"},
	} {
		if got, err := material.LookAtSSHKey(c.file, nil); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzLookAtSSHKey(f *testing.F) {
	f.Add([]byte("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAAA==\n-----END OPENSSH PRIVATE KEY-----\n"), []byte("ssh-ed25519 AAAA x"))
	f.Fuzz(func(t *testing.T, private, public []byte) { _, _ = material.LookAtSSHKey(private, public) })
}
