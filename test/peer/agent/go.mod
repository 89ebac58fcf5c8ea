module github.com/evented-pleg/evented-pleg/test/peer/agent

go 1.26.0
