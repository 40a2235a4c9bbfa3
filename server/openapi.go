package server

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"gopkg.in/yaml.v3"
)

// openapiYAML is the API's description. It is written by hand; tests hold it
// against the routes and against what they really answer.
//
//go:embed openapi.yaml
var openapiYAML []byte

// describe turns the description into JSON and puts the version in.
func describe(version string) ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(openapiYAML, &doc); err != nil {
		return nil, err
	}
	info, ok := doc["info"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it has no info")
	}
	info["version"] = version
	return json.Marshal(doc)
}

func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(s.spec)))
	_, _ = w.Write(s.spec)
	return nil
}
