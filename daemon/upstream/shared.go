package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what an upstream has to read.
const (
	MaxResources    = 1000          // of one upstream, and as many templates
	MaxSharedBytes  = 1 << 20       // of one upstream's list of resources, templates or prompts
	MaxPrompts      = 256           // of one upstream
	maxPromptBytes  = 64 << 10      // of one prompt's description of itself
	maxEntryBytes   = 16 << 10      // of one resource's
	maxURI          = 4096          // bytes
	maxPromptName   = 128           // bytes
	maxPromptValues = 64            // arguments of a prompt
	maxText         = 4 << 10       // bytes of a description
	maxLabel        = 512           // bytes of a name or title
	addressScheme   = "singlepass+" // of the URIs that agents are given, before the upstream's name
)

// Methods by which something is read.
const (
	ReadResource = "resources/read"
	GetPrompt    = "prompts/get"
)

// Resource is an entry of resources/list, with what is passed on of it. A template is one whose URI has places to fill.
type Resource struct {
	URI         string
	Name        string
	Title       string
	Description string
	MIMEType    string
	Size        *int64
}

// Readable is what an upstream has to read, as it said at one time.
type Readable struct {
	Resources []Resource
	Templates []Resource
	Cut       string // why it is not all; "" if it is
}

// ParseResource reads an entry of resources/list, or with template of resources/templates/list.
func ParseResource(raw []byte, template bool) (Resource, error) {
	var in struct {
		URI         string `json:"uri"`
		Template    string `json:"uriTemplate"`
		Name        string `json:"name"`
		Title       string `json:"title"`
		Description string `json:"description"`
		MIMEType    string `json:"mimeType"`
		Size        *int64 `json:"size"`
	}
	if len(raw) > maxEntryBytes || !utf8.Valid(raw) || json.Unmarshal(raw, &in) != nil {
		return Resource{}, errors.New("an entry is too long or cannot be read")
	}
	r := Resource{URI: in.URI, Name: clipTo(in.Name, maxLabel), Title: clipTo(in.Title, maxLabel), Description: clipTo(in.Description, maxText), MIMEType: clipTo(in.MIMEType, maxLabel), Size: in.Size}
	if template {
		r.URI, r.Size = in.Template, nil
	}
	return r, CheckURI(r.URI)
}

// CheckURI says whether a URI is one that is passed on. It is the upstream's own affair what it means.
func CheckURI(uri string) error {
	if uri == "" || len(uri) > maxURI || !utf8.ValidString(uri) || strings.ContainsFunc(uri, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }) {
		return fmt.Errorf("a URI is empty, longer than %d bytes, or has white space or characters that are not seen", maxURI)
	}
	return nil
}

// Address is the URI by which agents read a resource of an upstream. It is the upstream's own with a scheme before it that holds the upstream's name, which has no colon: so it is taken apart in one way only,
// no upstream can make one that is another's, and a template whose places are filled is still the address of what the upstream meant.
func Address(name, uri string) string { return addressScheme + name + ":" + uri }

// SplitAddress takes an address apart.
func SplitAddress(address string) (name, uri string, ok bool) {
	rest, ours := strings.CutPrefix(address, addressScheme)
	name, uri, cut := strings.Cut(rest, ":")
	return name, uri, ours && cut && nameForm.MatchString(name) && CheckURI(uri) == nil
}

// Prompt is a prompt as its upstream describes it: what is passed on of an entry of prompts/list, and what is pinned. The JSON form is frozen; fields may be added.
type Prompt struct {
	Name        string           `json:"name"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description,omitempty"`
	Arguments   []PromptArgument `json:"arguments,omitempty"`
}

// PromptArgument is one of a prompt's arguments, which are texts.
type PromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
}

// ParsePrompt reads an entry of prompts/list. Its error is for one that agents cannot be given; the name is set where it could be told.
func ParsePrompt(raw []byte) (Prompt, error) {
	var p Prompt
	if len(raw) > maxPromptBytes || !utf8.Valid(raw) {
		return p, fmt.Errorf("the prompt describes itself in more than %d bytes, or not in UTF-8", maxPromptBytes)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, errors.New("the prompt's description of itself cannot be read")
	}
	return p, p.Check()
}

// Check holds what must be true of a prompt that agents can be given.
func (p Prompt) Check() error {
	if p.Name == "" || len(p.Name) > maxPromptName || strings.ContainsFunc(p.Name, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }) {
		return fmt.Errorf("the prompt's name is empty, longer than %d bytes, or has control characters", maxPromptName)
	}
	if len(p.Arguments) > maxPromptValues {
		return fmt.Errorf("the prompt has more than %d arguments", maxPromptValues)
	}
	seen := map[string]bool{}
	for _, a := range p.Arguments {
		if a.Name == "" || len(a.Name) > maxPromptName || seen[a.Name] {
			return errors.New("an argument of the prompt has no name, a long one, or one that comes twice")
		}
		seen[a.Name] = true
	}
	return nil
}

// Pin is a digest of the prompt's name, title, description and arguments.
func (p Prompt) Pin() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and booleans
	}
	return digest("singlepass.dev/upstream-prompt/v1", b)
}

// PromptName is the name by which agents ask for a prompt of an upstream. An upstream's name has no dot, so it is taken apart in one way only.
func PromptName(name, prompt string) string { return name + "." + prompt }

// SplitPromptName takes such a name apart.
func SplitPromptName(s string) (name, prompt string, ok bool) {
	name, prompt, ok = strings.Cut(s, ".")
	return name, prompt, ok && prompt != "" && nameForm.MatchString(name)
}

func clipTo(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
