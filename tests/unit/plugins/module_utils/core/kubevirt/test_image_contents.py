# Copyright (c) 2026, the virtpools.kubevirt authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a look into an image finds. tests/kind looks into images that were built."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.base import names
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt import image_contents
from ansible_collections.virtpools.kubevirt.plugins.module_utils.core.kubevirt.image_contents import Contents
from ansible_collections.virtpools.kubevirt.tests.unit.support import builders

HANDLER, LAUNCHER = f"{builders.HANDLER_IMAGE}-gpu", builders.GPU_LAUNCHER_IMAGE
IMAGES = {"virtLauncherImage": LAUNCHER, "selector": {"deviceNames": ["a.example/gpu"]}}
POOL = builders.pool("gpu", **IMAGES)


def daemonset(**contents):
    """The pool's DaemonSet, of whose launcher image this was noted; without contents nothing."""
    made = builders.pool_daemonset(POOL)
    made["metadata"]["annotations"].pop(names.CONTENTS_ANNOTATION)
    return image_contents.with_record(made, {LAUNCHER: Contents(**contents)}) if contents else made


@pytest.fixture
def look(tmp_path):
    """Run the command in a folder that stands for an image, and read what it wrote."""

    def run(roles, files, users="qemu:x:107:107::/:/bin/sh"):
        for name in files:
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\necho {files[name]}\n" if isinstance(files, dict) else "", "utf-8")
            path.chmod(0o755)
        (tmp_path / "etc").mkdir(exist_ok=True)
        for name in ("passwd", "group"):
            (tmp_path / "etc" / name).write_text(f"root:x:0:0::/:/bin/sh\n{users}\n", "utf-8")
        script = image_contents.command(roles)[2].replace("/dev/termination-log", str(tmp_path / "log"))
        for top in ("/usr/", "/etc/"):
            script = script.replace(f" {top}", f" {tmp_path}{top}")
        subprocess.run(
            ["/bin/sh", "-c", script], env={"PATH": f"{tmp_path}/usr/bin"}, check=True, stderr=subprocess.DEVNULL
        )
        return image_contents.read(Path(tmp_path, "log").read_text("utf-8").replace(str(tmp_path), ""))

    return run


PROGRAMS = ("virt-launcher-monitor", "virt-launcher", "container-disk", "virt-tail", "virt-freezer", "virt-probe")
COMPLETE = {
    **dict.fromkeys((f"/usr/bin/{name}" for name in (*PROGRAMS, "node-labeller.sh")), ""),
    **dict.fromkeys(("/usr/sbin/virtqemud", "/etc/libvirt/qemu.conf", "/etc/libvirt/virtqemud.conf"), ""),
    "/usr/libexec/qemu-kvm": "QEMU emulator version 10.1.0 '(qemu-kvm-10.1.0-3.el9)'",
    "/usr/bin/virsh": "11.9.0",
}


class TestLook:
    def test_a_launcher_image(self, look):
        missing, contents = look(["launcher"], COMPLETE)
        assert missing == ()
        assert str(contents) == "QEMU 10.1.0, libvirt 11.9.0, no virtiofsd, no swtpm, no UEFI firmware"

    def test_what_only_some_vms_need(self, look):
        more = {"/usr/libexec/virtiofsd": "", "/usr/bin/swtpm": "", "/usr/share/edk2/ovmf/OVMF_CODE.fd": ""}
        assert look(["launcher"], {**COMPLETE, **more})[1] == Contents(qemu="10.1.0", libvirt="11.9.0")

    @pytest.mark.parametrize("path", [path for path in COMPLETE if "qemu-kvm" not in path])
    def test_each_missing_part_is_named(self, look, path):
        (missing,), _contents = look(["launcher"], {name: said for name, said in COMPLETE.items() if name != path})
        assert missing == (
            path if path not in ("/usr/bin/node-labeller.sh", "/usr/bin/virsh") else os.path.basename(path)
        )

    @pytest.mark.parametrize(
        ("parts", "lacking"),
        [
            (["/usr/bin/libvirt-hook-client", "/etc/libvirt/hooks/qemu"], ()),
            (["/usr/bin/libvirt-hook-client"], ("a folder /etc/libvirt/hooks of the user qemu",)),
            (["/etc/libvirt/hooks/qemu"], ("/usr/bin/libvirt-hook-client",)),
        ],
    )
    def test_what_virt_launcher_puts_into_its_hook(self, look, parts, lacking):
        launcher = {"/usr/bin/virt-launcher": "--image-volume --libvirt-hook-server-and-client --name"}
        assert look(["launcher"], {**COMPLETE, **launcher, **dict.fromkeys(parts, "")})[0] == lacking

    def test_an_image_without_qemu(self, look):
        files = {name: said for name, said in COMPLETE.items() if "qemu-kvm" not in name}
        assert look(["launcher"], files)[0] == ("QEMU",)
        files["/usr/bin/qemu-system-i386"] = "QEMU emulator version 10.0.13"
        assert look(["launcher"], files)[0] == ("QEMU",)

    def test_a_debian_image(self, look):
        files = {name: said for name, said in COMPLETE.items() if "qemu-kvm" not in name}
        files["/usr/bin/qemu-system-x86_64"] = "QEMU emulator version 10.0.13 '(Debian 1:10.0.13+ds-0+deb13u1)'"
        assert look(["launcher"], files)[1].qemu == "10.0.13"

    @pytest.mark.parametrize("users", ["", "qemu:x:36:36::/:/bin/sh", "kvm:x:107:107::/:/bin/sh"])
    def test_the_user_and_the_group(self, look, users):
        missing, _contents = look(["handler"], ["/usr/bin/virt-handler", "/usr/bin/virt-chroot"], users)
        assert missing == ("qemu:107 in /etc/passwd", "qemu:107 in /etc/group")

    def test_a_handler_image(self, look):
        assert look(["handler"], ["/usr/bin/virt-handler", "/usr/bin/virt-chroot"]) == ((), Contents())
        assert look(["handler", "launcher"], ["/usr/bin/virsh"])[0][:1] == ("node-labeller.sh",)

    @pytest.mark.parametrize("message", ["", "missing /usr/bin/virt-tail\n", "Killed"])
    def test_a_look_that_did_not_end_finds_nothing(self, message):
        missing, contents = image_contents.read(message)
        assert missing == ()
        assert str(contents) == "unchecked, because its shell did not end what it began"

    def test_what_an_image_says_is_one_safe_line(self):
        missing, contents = image_contents.read("missing a\x1b[31m\nqemu version 1.2\x1b\nlooked")
        assert missing == ("a\\x1b[31m",)
        assert contents.qemu == "1.2"


class TestRoles:
    def test_by_the_containers_that_run_the_image(self):
        assert image_contents.roles_of(daemonset()) == {HANDLER: ("handler",), LAUNCHER: ("launcher",)}

    def test_kubevirts_own_images_can_be_left_out(self):
        assert image_contents.roles_of(daemonset(), {HANDLER}) == {LAUNCHER: ("launcher",)}

    def test_an_image_with_both(self):
        made = builders.pool_daemonset(builders.pool("gpu", virtHandlerImage=LAUNCHER, **IMAGES))
        assert image_contents.roles_of(made) == {LAUNCHER: ("handler", "launcher")}


class TestRecord:
    def test_is_read_as_it_was_written(self):
        contents = Contents("10.1.0", "11.9.0", ("swtpm",))
        noted = image_contents.with_record(daemonset(), {LAUNCHER: contents, HANDLER: Contents(unchecked="no shell")})
        assert image_contents.recorded(noted) == {LAUNCHER: contents, HANDLER: Contents(unchecked="no shell")}

    def test_keeps_what_is_known_of_the_other_images(self):
        noted = image_contents.with_record(daemonset(qemu="10.1.0"), {HANDLER: Contents()})
        assert image_contents.recorded(noted).keys() == {LAUNCHER, HANDLER}

    def test_forgets_images_that_the_daemonset_no_longer_has(self):
        former = image_contents.with_record(daemonset(), {"registry.example/former:1": Contents()})
        assert image_contents.recorded(image_contents.with_record(former, {HANDLER: Contents()})).keys() == {HANDLER}

    def test_is_no_drift(self):
        plain = daemonset()
        assert plain != daemonset(qemu="10.1.0")
        assert image_contents.daemonsets.drift(plain, daemonset(qemu="10.1.0")) == ()

    @pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"a": 1}', '{"a": {"without": 3}}'])
    def test_one_that_cannot_be_read_is_none(self, text):
        made = daemonset()
        made["metadata"]["annotations"][names.CONTENTS_ANNOTATION] = text
        assert image_contents.recorded(made) == {}


class TestWords:
    def test_of_a_launcher_image(self):
        known = image_contents.by_image({"gpu": daemonset(qemu="10.1.0", libvirt="11.9.0")})
        assert image_contents.launcher_line("gpu", LAUNCHER, known) == (
            f"Pool gpu has launcher image {LAUNCHER} (QEMU 10.1.0, libvirt 11.9.0)."
        )

    def test_of_one_that_was_not_looked_into(self):
        known = image_contents.by_image({"gpu": daemonset(unchecked="it has no /bin/sh")})
        assert image_contents.launcher_line("gpu", LAUNCHER, known) == (
            f"Pool gpu has launcher image {LAUNCHER} (unchecked, because it has no /bin/sh)."
        )

    def test_none_of_an_image_that_is_not_known(self):
        known = image_contents.by_image({"gpu": daemonset()})
        assert image_contents.launcher_line("gpu", LAUNCHER, known) is None
        assert image_contents.launcher_line("gpu", None, known) is None

    def test_an_image_that_was_not_looked_into_is_a_finding(self):
        (found,) = image_contents.examine(
            {"gpu": daemonset(unchecked="it has no /bin/sh"), "l4": daemonset(qemu="1.2")}
        )
        assert (found.severity, found.code) == ("warning", "image_unchecked")
        assert found.message == (
            f"Pool gpu: whether {LAUNCHER} (it has no /bin/sh) has all that KubeVirt needs was not checked."
        )
