package material

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The names of the values of kind aws-sigv4, as every AWS tool spells them in the environment.
const (
	AWSKeyID     = "AWS_ACCESS_KEY_ID"
	AWSSecretKey = "AWS_SECRET_ACCESS_KEY" // #nosec G101 -- a name
	AWSToken     = "AWS_SESSION_TOKEN"     // #nosec G101 -- a name
)

var awsKeyID = regexp.MustCompile(`^[A-Za-z0-9]{4,128}$`)

// beside are names that stand with the keys in files of AWS tools and are not part of them.
var beside = []string{"REGION", "OUTPUT", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CREDENTIAL_EXPIRATION", "AWS_DEFAULT_OUTPUT"}

// AWSKeys turns what was handed in for a credential of kind aws-sigv4 into the kept form. It takes AWS_… lines, one profile of an AWS credentials file, and the JSON that `aws configure
// export-credentials` and `aws sts` print.
func AWSKeys(b []byte) ([]byte, error) {
	text := bytes.TrimSpace(b)
	var found []Field
	var err error
	if bytes.HasPrefix(text, []byte("{")) {
		found, err = awsJSON(text)
	} else {
		found, err = awsLines(text)
	}
	if err != nil {
		return nil, err
	}
	id, key, token := Get(found, AWSKeyID), Get(found, AWSSecretKey), Get(found, AWSToken)
	switch {
	case len(id) == 0:
		return nil, fmt.Errorf("%s is missing", AWSKeyID)
	case !awsKeyID.Match(id):
		return nil, fmt.Errorf("%s is not made of letters and digits", AWSKeyID)
	case len(key) == 0:
		return nil, fmt.Errorf("%s is missing", AWSSecretKey)
	case !visible(key) || !visible(token):
		return nil, errors.New("a key or token has a space, a control character or one outside of ASCII")
	}
	kept := []Field{{AWSKeyID, id}, {AWSSecretKey, key}}
	if len(token) > 0 {
		kept = append(kept, Field{AWSToken, token})
	}
	return Encode(kept)
}

func awsJSON(b []byte) ([]Field, error) {
	type keys struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string
	}
	var in struct {
		keys
		Credentials *keys
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, errors.New("the value begins like JSON and is none") // the error could quote it
	}
	if in.Credentials != nil {
		in.keys = *in.Credentials
	}
	return []Field{{AWSKeyID, []byte(in.AccessKeyID)}, {AWSSecretKey, []byte(in.SecretAccessKey)}, {AWSToken, []byte(in.SessionToken)}}, nil
}

func awsLines(b []byte) ([]Field, error) {
	if bytes.HasPrefix(b, []byte("[")) {
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	if bytes.HasPrefix(b, []byte("[")) || bytes.Contains(b, []byte("\n[")) {
		return nil, errors.New("there is more than one profile: hand in one of them")
	}
	all, err := Lines(b)
	if err != nil {
		return nil, err
	}
	var found []Field
	for _, f := range all {
		switch name := strings.ToUpper(f.Name); {
		case name == AWSKeyID || name == AWSSecretKey || name == AWSToken:
			if Get(found, name) != nil {
				return nil, fmt.Errorf("%s is there twice: leave one of them out", name)
			}
			found = append(found, Field{name, f.Value})
		case !slices.Contains(beside, name):
			return nil, fmt.Errorf("%s, %s and %s are taken, and there is another name", AWSKeyID, AWSSecretKey, AWSToken)
		}
	}
	return found, nil
}

func visible(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// AWSProfile returns one profile of an AWS credentials file, as AWSKeys takes it, and its lines, from 1.
func AWSProfile(b []byte, profile string) (section []byte, from, last int, err error) {
	start := -1
	at, number := 0, 0
	for line := range bytes.Lines(b) {
		number++
		text := bytes.TrimSpace(line)
		if len(text) > 1 && text[0] == '[' && text[len(text)-1] == ']' {
			if start >= 0 {
				return b[start:at], from, last, nil
			}
			name := strings.TrimSpace(string(text[1 : len(text)-1]))
			if name == profile || name == "profile "+profile {
				start, from, last = at, number, number
			}
		} else if start >= 0 && len(text) > 0 {
			last = number
		}
		at += len(line)
	}
	if start < 0 {
		return nil, 0, 0, fmt.Errorf("there is no profile %q", profile)
	}
	return b[start:], from, last, nil
}
