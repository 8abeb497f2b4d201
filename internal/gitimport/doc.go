// Package gitimport makes histories of the documents in a git repository: lines
// as package transfer reads them.
//
// Invariants:
//
//   - The history is that of HEAD along first parents. What a merge brought in is
//     one change of the documents, by who merged.
//   - All versions of a commit have one time, greater than that of the commit
//     before; so a store as of any instant is the repository as of a commit.
//   - The same commits and the same map give the same lines, so that an import can
//     be repeated, and continues.
//   - Nothing of the repository is executed: no hook, filter, pager or helper that
//     its configuration names, and nothing is fetched. Its paths and names are
//     never arguments of a command.
//   - Memory is bounded by the number of documents that exist at a time and of
//     files that one commit changes, and not by the number of commits, nor by the size
//     of all documents together.
package gitimport
