package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestJB7_GeneratorsCanReadTheDescription looks in openapi.yaml for what generators of clients
// turn into types without names, into unions that no program can use, or into nothing. The generators
// themselves run at night (internal/cli).
func TestJB7_GeneratorsCanReadTheDescription(t *testing.T) {
	t.Parallel()
	if faults := unclean31(t, openapiYAML); len(faults) > 0 {
		t.Error(strings.Join(faults, "\n"))
	}
	for what, change := range map[string][2]string{
		"oneOf":           {"    SentOne:\n      type: object", "    SentOne:\n      oneOf: [{type: string}]"},
		"types":           {"SentOne:\n      type: object", "SentOne:\n      type: [object, string]"},
		"no operationId":  {"      operationId: showQueue\n", ""},
		"an operation id": {"operationId: showQueue\n", "operationId: listQueues\n"},
		"no name":         {"options: {$ref: '#/components/schemas/QueueOptions'}", "options: {type: object, properties: {a: {type: string}}}"},
		"a default":       {"max_attempts: {type: integer,", "max_attempts: {type: integer, default: 20,"},
		"beside a ref":    {"state: {$ref: '#/components/schemas/State'}", "state: {$ref: '#/components/schemas/State', description: It.}"},
	} {
		changed := strings.Replace(string(openapiYAML), change[0], change[1], 1)
		if changed == string(openapiYAML) || len(unclean31(t, []byte(changed))) == 0 {
			t.Errorf("%s is not noticed", what)
		}
	}
}

// unclean31 returns the places of a description that generators do not understand.
func unclean31(t *testing.T, description []byte) (faults []string) {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal(description, &doc); err != nil {
		t.Fatal(err)
	}
	var operations []any
	var walk func(at []string, node any)
	walk = func(at []string, node any) {
		fail := func(format string, args ...any) {
			faults = append(faults, strings.Join(at, "/")+" "+fmt.Sprintf(format, args...))
		}
		if list, ok := node.([]any); ok {
			for i, each := range list {
				walk(append(slices.Clone(at), fmt.Sprint(i)), each)
			}
		}
		object, ok := node.(map[string]any)
		if !ok {
			return
		}
		for _, union := range []string{"oneOf", "anyOf", "allOf"} {
			if object[union] != nil && object["discriminator"] == nil {
				fail("has %s", union)
			}
		}
		// Generators know a type that may also be null.
		if types, several := object["type"].([]any); several && at[len(at)-1] != "required" && !(len(types) == 2 && types[1] == "null") {
			fail("has several types")
		}
		named := len(at) == 3 && at[1] == "schemas"
		if _, fields := object["properties"].(map[string]any); fields && object["type"] == "object" && !named {
			fail("is an object without a name of its own")
		}
		// The default invocation of openapi-typescript makes fields with a default required.
		if object["default"] != nil && object["type"] != nil && slices.Contains(at, "schemas") {
			fail("has a default; describe it")
		}
		if object["$ref"] != nil && len(object) > 1 {
			fail("has more than the reference")
		}
		if object["responses"] != nil && at[0] == "paths" {
			id := object["operationId"]
			if id == nil || slices.Contains(operations, id) {
				fail("has the operationId %v", id)
			}
			operations = append(operations, id)
		}
		for name, each := range object {
			walk(append(slices.Clone(at), name), each)
		}
	}
	for name, part := range doc {
		walk([]string{name}, part)
	}
	return faults
}
