package policy

// ChecksItself says whether the action's arguments are validated by check and not by the JSON Schema library.
func ChecksItself(a *Action) bool { return a.contract.input.check != nil }
