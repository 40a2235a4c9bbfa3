package server

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"gopkg.in/yaml.v3"
)

// openapiYAML describes the API. It is written by hand. Tests compare it with the routes and
// with real requests and responses.
//
//go:embed openapi.yaml
var openapiYAML []byte

// describe converts the description to JSON and sets the version.
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
