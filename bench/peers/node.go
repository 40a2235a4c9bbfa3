package main

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
)

// runners are our scripts, which are copied into the directory of the packages that they
// import.
//
//go:embed node/package.json node/*.mjs
var runners embed.FS

// nodePeer is a product for Node.js. A script of ours calls it.
type nodePeer struct {
	name string // name of the npm package and of the script
	tool *nodeTool
}

var (
	theNode        = &nodeTool{}
	graphileWorker = nodePeer{name: "graphile-worker", tool: theNode}
	pgBoss         = nodePeer{name: "pg-boss", tool: theNode}
)

func (p nodePeer) about() about {
	return about{name: p.name, version: pinned(p.name), producers: 2, limit: 20_000}
}

func (nodePeer) rows(scenario string) []string { return usual(scenario) }

// pinned returns the version of an npm package in our package.json.
func pinned(name string) string {
	var p struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	b, _ := runners.ReadFile("node/package.json")
	if json.Unmarshal(b, &p) != nil || p.Dependencies[name] == "" {
		return "unknown version"
	}
	return p.Dependencies[name]
}

func (p nodePeer) prepare(ctx context.Context, t *tools) error { return p.tool.prepare(ctx, t) }

func (p nodePeer) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.tool.program, filepath.Join(p.tool.dir, p.name+".mjs")) //nolint:gosec // our own script
	cmd.Dir = p.tool.dir
	return cmd
}

// install runs the script to create the schema, because the packages do that themselves.
func (p nodePeer) install(ctx context.Context, o order) error {
	o.Role = roleInstall
	process, err := start(ctx, p, o)
	if err != nil {
		return err
	}
	return process.end()
}

// nodeTool is Node.js with the packages, which all products share.
type nodeTool struct {
	dir, program string
	err          error
	done         bool
}

func (n *nodeTool) prepare(ctx context.Context, t *tools) error {
	if n.done {
		return n.err
	}
	n.done = true
	if n.dir, n.err = t.npmInstall(ctx); n.err != nil {
		return n.err
	}
	// The packages need a newer Node.js than many systems have, so it is installed as a
	// package, too.
	n.program = filepath.Join(n.dir, "node_modules", "node", "bin", "node")
	if _, err := exec.CommandContext(ctx, n.program, "--version").Output(); err != nil { //nolint:gosec // what npm installed
		n.err = fmt.Errorf("the Node.js that npm installed does not run: %w", err)
	}
	return n.err
}
