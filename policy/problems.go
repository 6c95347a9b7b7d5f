package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a contract.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // from 1, in characters
	Path    string `json:"path"`   // JSON Pointer of the place within the contract
	Message string `json:"message"`
	Remedy  string `json:"remedy"` // what to write instead
}

func (p Problem) String() string {
	where := ""
	if p.Path != "" {
		where = p.Path + ": "
	}
	return fmt.Sprintf("%s:%d:%d: %s%s; %s", p.File, p.Line, p.Column, where, p.Message, p.Remedy)
}

// Problems is the error of Parse: everything that is wrong, in the file's order.
type Problems struct{ List []Problem }

func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, problem := range p.List {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// maxProblems bounds the list: past that, the file is something else than a contract.
const maxProblems = 50

func (p *Problems) sort() {
	slices.SortFunc(p.List, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Remedy, b.Remedy))
	})
	p.List = slices.CompactFunc(p.List, func(a, b Problem) bool { return a == b })
	p.List = p.List[:min(len(p.List), maxProblems)]
}
