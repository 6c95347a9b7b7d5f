package effect

import (
	"errors"
	"unicode"
	"unicode/utf8"
)

// Person is the channel of what goes to nobody but the person: a question, whose answer is the outcome.
const Person Channel = "person"

// Ask asks the person to add a credential. It is a proposal in the agent's words: nothing of it is stored as a credential, and it decides nothing.
type Ask struct {
	Target  string `json:"target"`  // what the credential is wanted for, as credentials' targets are written
	Purpose string `json:"purpose"` // why, in the agent's words
}

// MaxPurpose is the longest purpose, in characters.
const MaxPurpose = 300

func (a Ask) check() error {
	if a.Target == "" || utf8.RuneCountInString(a.Purpose) > MaxPurpose {
		return errors.New("a question names its target, and its purpose is short")
	}
	for _, r := range a.Target + a.Purpose {
		if unicode.IsControl(r) {
			return errors.New("a question has no control characters")
		}
	}
	return nil
}
