"""Which of the mounts at a path are stoker's, by what the kernel tells of them."""

import pytest

from stoker.storage.mounting.attach import num_ours

FUSE = "36 35 0:42 / {at} ro,nosuid shared:9 - fuse.stoker stoker ro,user_id=0"
OVERLAY = "37 36 0:43 / {at} ro - overlay stoker ro,lowerdir=/proc/self/fd/6:/proc/self/fd/7"
OTHERS = [
    "38 35 0:44 / {at} rw - overlay overlay rw,lowerdir=/a,upperdir=/stoker",
    "39 35 0:45 / {at} rw - fuse.sshfs stoker: rw",
    "40 35 8:1 /stoker {at} rw - ext4 /dev/sda1 rw",
    "41 35 0:46 / {at}/below ro - fuse.stoker stoker ro",
]


@pytest.mark.parametrize("at", ["/data/a", "/data/with space\tand ü", "/back\\slash"])
@pytest.mark.parametrize(
    ("lines", "num"),
    [([], 0), ([FUSE], 1), ([FUSE, OVERLAY], 2), (OTHERS, 0), ([*OTHERS, FUSE], 1)],
)
def test_only_our_mounts_at_that_very_path_are_counted(tmp_path, at, lines, num):
    masked = at.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    told = tmp_path / "mountinfo"
    told.write_text("".join(f"{line.format(at=masked)}\n" for line in lines))
    assert num_ours(at, told) == num
