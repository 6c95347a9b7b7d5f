package policy

import (
	_ "embed"
	"slices"
)

//go:embed contract.schema.json
var contractSchema []byte

// Schema is the published JSON Schema of a contract, for editors and for `spctl action schema`. It holds what a schema can say; Parse checks the rest.
func Schema() []byte { return slices.Clone(contractSchema) }
