package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"singlepass.dev/daemon/api"
	"singlepass.dev/policy"
)

// checkActions says on out what each contract would mean, or what is wrong with it, a line of JSON each. It is an error only when a file cannot be read.
func checkActions(files []string, out io.Writer) error {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, file := range files {
		src, err := readContract(file)
		if err != nil {
			return err
		}
		check, err := checkAction(file, src)
		if err != nil {
			return err
		}
		if err := lines.Encode(check); err != nil {
			return fmt.Errorf("writing what was found: %w", err)
		}
	}
	return nil
}

func readContract(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, policy.MaxContractBytes+1)) // one more is enough for Parse to refuse it
	if err != nil {
		return nil, fmt.Errorf("reading contract: %w", err)
	}
	return b, nil
}

func checkAction(file string, src []byte) (api.ContractCheck, error) {
	check := api.ContractCheck{File: file, Digest: policy.Digest(src)}
	contract, err := policy.Parse(file, src)
	var action *policy.Action
	if err == nil {
		action, err = policy.Compile(contract)
	}
	var problems *policy.Problems
	switch {
	case errors.As(err, &problems):
		for _, p := range problems.List {
			check.Problems = append(check.Problems, api.ContractProblem(p))
		}
	case err != nil:
		return check, fmt.Errorf("checking %s: %w", file, err)
	default:
		c := action.Contract()
		check.Valid, check.Action, check.Class, check.Description = true, c.Action, string(c.Replay.Class), action.Tool().Description
	}
	return check, nil
}
