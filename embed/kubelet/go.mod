// The adapter has no dependencies of its own: go run ./embed/install puts it into a tree of Kubernetes,
// where it is built and tested with what the tree has.
module github.com/evented-pleg/evented-pleg/embed/kubelet

go 1.26.0
