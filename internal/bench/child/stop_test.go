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

// asParent makes this program one that stops a slow child, and itself meanwhile.
const asParent = "EVENTED_PLEG_TEST_PARENT"

const grace = 2 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(asParent) == "" {
		os.Exit(m.Run())
	}
	if err := stopSlowChild(); err != nil {
		fmt.Println("stopped:", err)
		os.Exit(1)
	}
	fmt.Println("stopped")
}

func stopSlowChild() error {
	fromChild, asked, err := os.Pipe()
	if err != nil {
		return err
	}
	end, toChild, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", slowChild)
	cmd.ExtraFiles = []*os.File{asked, end}
	c, err := Run("the child", cmd)
	if err != nil {
		return err
	}
	go func() { // ends with the program
		_, _ = bufio.NewReader(fromChild).ReadString('\n') // Stop waits from now on
		standStill()
		_, _ = fmt.Fprintln(toChild, "end")
	}()
	return c.Stop(grace)
}

// standStill stops this process until it is continued, a grace later at least, and waits for what
// is overdue then to be done.
func standStill() {
	last := time.Now()
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	for time.Since(last) < grace { // the signal may take a moment
		last = time.Now()
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
}

// TestStandstillIsNoGrace has a process that waits for the end of its child really stand still, for
// longer than the child has to end. The child is not killed, and ends when it was going to.
func TestStandstillIsNoGrace(t *testing.T) {
	var said strings.Builder
	parent := exec.Command(testkit.Must(os.Executable())(t))
	parent.Env = append(os.Environ(), asParent+"=yes")
	parent.Stdout = &said
	parent.Stderr = os.Stderr
	testkit.Check(t, parent.Start())
	var is syscall.WaitStatus
	testkit.Must(syscall.Wait4(parent.Process.Pid, &is, syscall.WUNTRACED, nil))(t)
	if !is.Stopped() {
		t.Fatalf("it has not stopped, but ended with %d", is.ExitStatus())
	}
	time.Sleep(grace + time.Second) // in which it does not run
	testkit.Check(t, parent.Process.Signal(syscall.SIGCONT))
	err := parent.Wait()
	if err != nil || said.String() != "stopped\n" {
		t.Errorf("%q (%v)", said.String(), err)
	}
}
