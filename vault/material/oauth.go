package material

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// The names of the values of kind oauth2 (RFC 6749, sections 2.3.1 and 6).
const (
	OAuthClientSecret = "client_secret"
	OAuthRefreshToken = "refresh_token"
)

// OAuthGrant is how an access token is asked for.
type OAuthGrant string

// The grants of this version.
const (
	ClientCredentials OAuthGrant = "client_credentials" // RFC 6749, section 4.4
	RefreshToken      OAuthGrant = "refresh_token"      // RFC 6749, section 6
)

// OAuth turns what was handed in for a credential of kind oauth2 into the kept form. One line of text is the client secret (client_credentials) or the refresh token (refresh_token); a client that
// has both hands in lines or JSON with client_secret and refresh_token.
func OAuth(grant OAuthGrant, b []byte) ([]byte, error) {
	text := bytes.TrimSpace(b)
	var found []Field
	switch {
	case bytes.HasPrefix(text, []byte("{")):
		var in struct {
			Secret string `json:"client_secret"`
			Token  string `json:"refresh_token"`
		}
		if err := json.Unmarshal(text, &in); err != nil {
			return nil, errors.New("the value begins like JSON and is none")
		}
		found = []Field{{OAuthClientSecret, []byte(in.Secret)}, {OAuthRefreshToken, []byte(in.Token)}}
	case bytes.HasPrefix(text, []byte(OAuthClientSecret)), bytes.HasPrefix(text, []byte(OAuthRefreshToken)):
		var err error
		if found, err = Lines(text); err != nil {
			return nil, err
		}
	case grant == RefreshToken:
		found = []Field{{OAuthRefreshToken, text}}
	default:
		found = []Field{{OAuthClientSecret, text}}
	}
	var kept []Field
	for _, f := range found {
		switch {
		case f.Name != OAuthClientSecret && f.Name != OAuthRefreshToken:
			return nil, fmt.Errorf("%s and %s are taken, and there is another name", OAuthClientSecret, OAuthRefreshToken)
		case len(f.Value) == 0:
			continue
		case f.Name == OAuthRefreshToken && grant != RefreshToken:
			return nil, errors.New("there is a refresh token, and the grant is client_credentials: choose the grant refresh_token")
		}
		for _, c := range f.Value { // RFC 6749, appendix A: VSCHAR
			if c < ' ' || c >= 0x7f {
				return nil, fmt.Errorf("%s has a control character or one outside of ASCII", f.Name)
			}
		}
		kept = append(kept, f)
	}
	switch {
	case grant == RefreshToken && Get(kept, OAuthRefreshToken) == nil:
		return nil, errors.New("the refresh token is missing")
	case grant == ClientCredentials && Get(kept, OAuthClientSecret) == nil:
		return nil, errors.New("the client secret is missing")
	}
	return Encode(kept)
}
