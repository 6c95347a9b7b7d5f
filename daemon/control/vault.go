package control

import (
	"singlepass.dev/daemon/api"
	"singlepass.dev/vault/secret"
)

func (s *Server) status(request) (any, error) { return s.cfg.Daemon.Status(), nil }

func (s *Server) initVault(r request) (any, error) {
	var in api.InitRequest
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	passphrase, err := take(in.Passphrase)
	if err != nil {
		return nil, err
	}
	defer passphrase.Wipe()
	kit, err := s.cfg.Vault.Init(r.Context(), passphrase, in.NoKeyring)
	if err != nil {
		return nil, err
	}
	return api.InitAnswer{RecoveryKit: kit, Status: s.cfg.Daemon.Status()}, nil
}

func (s *Server) unlock(r request) (any, error) {
	var in api.UnlockRequest
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	passphrase, err := take(in.Passphrase)
	if err != nil {
		return nil, err
	}
	defer passphrase.Wipe()
	var kit *secret.Bytes
	if len(in.RecoveryKit) > 0 {
		kit = secret.New(in.RecoveryKit)
		defer kit.Wipe()
	}
	if err := s.cfg.Vault.Unlock(r.Context(), passphrase, kit); err != nil {
		return nil, err
	}
	return s.cfg.Daemon.Status(), nil
}

func (s *Server) lock(request) (any, error) {
	s.cfg.Vault.Lock()
	return s.cfg.Daemon.Status(), nil
}

func (s *Server) changePassphrase(r request) (any, error) {
	var in api.PassphraseRequest
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	before, err := take(in.Old)
	if err != nil {
		return nil, err
	}
	defer before.Wipe()
	after, err := take(in.New)
	if err != nil {
		return nil, err
	}
	defer after.Wipe()
	return nil, s.cfg.Vault.ChangePassphrase(r.Context(), before, after)
}

// take moves a secret out of a decoded request.
func take(b []byte) (*secret.Bytes, error) {
	if len(b) == 0 {
		return nil, api.Errorf(api.CodeProofNeeded, "the passphrase is missing")
	}
	return secret.New(b), nil
}

func (s *Server) credentials(r request) (any, error) {
	list, err := s.cfg.Credentials.Credentials(r.Context())
	if list == nil {
		list = []api.Credential{}
	}
	return list, err
}

func (s *Server) credential(r request) (any, error) {
	list, err := s.cfg.Credentials.Credentials(r.Context())
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if c.Name == r.PathValue("name") {
			return c, nil
		}
	}
	return nil, api.Errorf(api.CodeMissing, "there is no credential %q", r.PathValue("name")).WithHint("spctl credential list")
}

func (s *Server) addCredential(r request) (any, error) {
	var in api.CredentialRequest
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Secret) == 0 {
		return nil, api.Errorf(api.CodeUsage, "the credential's value is empty")
	}
	value, err := keyValue(in.Secret, in.KeyPassphrase)
	if err != nil {
		return nil, err
	}
	defer value.Wipe()
	return nil, encrypted(s.cfg.Credentials.AddCredential(r.Context(), in.Credential, in.Plaintext, value))
}

func (s *Server) changeCredential(r request) (any, error) {
	var in api.CredentialChange
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	return nil, s.cfg.Credentials.ChangeCredential(r.Context(), r.PathValue("name"), in)
}

func (s *Server) rotateCredential(r request) (any, error) {
	var in struct {
		Secret        []byte `json:"secret"`
		KeyPassphrase []byte `json:"key_passphrase"`
	}
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Secret) == 0 {
		return nil, api.Errorf(api.CodeUsage, "the credential's new value is empty")
	}
	value, err := keyValue(in.Secret, in.KeyPassphrase)
	if err != nil {
		return nil, err
	}
	defer value.Wipe()
	return nil, encrypted(s.cfg.Credentials.RotateCredential(r.Context(), r.PathValue("name"), value))
}

func (s *Server) removeCredential(r request) (any, error) {
	return nil, s.cfg.Credentials.RemoveCredential(r.Context(), r.PathValue("name"))
}
