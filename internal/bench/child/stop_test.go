// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// slowChild ends when it is told to at descriptor 4, after it has said at descriptor 3 that it was
// asked to end.
const slowChild = `cat >/dev/null; echo asked >&3; read -r line <&4`

// asParent makes this program one that stops a slow child, with the descriptors 3 and 4 for it, and
// says at descriptor 5 that it runs again after it was stopped.
const asParent = "EVENTED_PLEG_TEST_PARENT"

const grace = 2 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(asParent) == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/bin/sh", "-c", slowChild)
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "asked"), os.NewFile(4, "end")}
	c, err := Run("the child", cmd)
	if err == nil {
		go sayOn(os.NewFile(5, "on"))
		err = c.Stop(grace)
	}
	fmt.Println("stopped:", err)
}

// sayOn waits until this process has been stopped, and for what is overdue then to be done.
func sayOn(out *os.File) {
	for last := time.Now(); time.Since(last) < grace; {
		last = time.Now()
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	fmt.Fprintln(out, "on")
}

// TestStandstillIsNoGrace really stops a process that waits for the end of its child, for longer
// than the child has to end. The child is not killed, and ends when it was going to.
func TestStandstillIsNoGrace(t *testing.T) {
	fromChild, asked, err := os.Pipe()
	testkit.Check(t, err)
	defer fromChild.Close()
	end, toChild, err := os.Pipe()
	testkit.Check(t, err)
	defer toChild.Close()
	fromParent, on, err := os.Pipe()
	testkit.Check(t, err)
	defer fromParent.Close()
	var said strings.Builder
	parent := exec.Command(testkit.Must(os.Executable())(t))
	parent.Env = append(os.Environ(), asParent+"=yes")
	parent.ExtraFiles = []*os.File{asked, end, on}
	parent.Stdout = &said
	parent.Stderr = os.Stderr
	testkit.Check(t, parent.Start())
	testkit.Check(t, asked.Close())
	testkit.Check(t, end.Close())
	testkit.Check(t, on.Close())

	testkit.Must(bufio.NewReader(fromChild).ReadString('\n'))(t) // Stop waits from now on
	testkit.Check(t, parent.Process.Signal(syscall.SIGSTOP))
	time.Sleep(grace + time.Second) // in which it does not run
	testkit.Check(t, parent.Process.Signal(syscall.SIGCONT))
	_, onErr := bufio.NewReader(fromParent).ReadString('\n')
	_, endErr := fmt.Fprintln(toChild, "end")
	testkit.Check(t, parent.Wait())
	if said.String() != "stopped: <nil>\n" || onErr != nil || endErr != nil {
		t.Errorf("%q (%v, %v)", said.String(), onErr, endErr)
	}
}
