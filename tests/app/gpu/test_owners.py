import pytest

from app.gpu.owners import is_desktop, is_service, role_of
from app.gpu.record import ProcessKind

SESSION_AND_SYSTEM = [
    "Xorg",
    "X",
    "Xwayland",
    "Xvfb",
    "xvfb-run",
    "Xephyr",
    "Xnest",
    "Xvnc",
    "Xvnc4",
    "Xtigervnc",
    "Xtightvnc",
    "Xtightvnc.real",
    "x0vncserver",
    "vncserver",
    "vncserver-x11-core",
    "tigervncserver",
    "x11vnc",
    "wayvnc",
    "xpra",
    "Xpra",
    "xrdp",
    "xrdp-sesman",
    "xrdp-chansrv",
    "gnome-remote-de",
    "gnome-remote-desktop-daemon",
    "kmscon",
    "gamescope",
    "gamescope-wl",
    "gamescopereaper",
    "cage",
    "gnome-shell",
    "gnome-session-binary",
    "gnome-session-b",
    "mutter-x11-frames",
    "kwin_x11",
    "kwin_wayland",
    "plasmashell",
    "ksmserver",
    "sway",
    "Hyprland",
    "weston",
    "cosmic-comp",
    "cosmic-session",
    "niri",
    "labwc",
    "wayfire",
    "river",
    "cinnamon",
    "muffin",
    "xfwm4",
    "marco",
    "budgie-wm",
    "gdm-session-worker",
    "sddm-helper",
    "lightdm",
    "greetd",
    "systemd",
    "systemd-logind",
    "dbus-daemon",
    "dbus-broker",
    "pipewire",
    "wireplumber",
    "polkitd",
    "NetworkManager",
    "sshd",
    "nvidia-persistenced",
    "nvidia-persiste",
    "nvidia-powerd",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-cuda-mps",
    "dcgm",
    "dockerd",
    "containerd",
]


@pytest.mark.parametrize("name", SESSION_AND_SYSTEM)
def test_session_and_system_names_are_known(name: str) -> None:
    assert is_desktop(["some-wrapper", name])


@pytest.mark.parametrize(
    "name",
    [
        "python3",
        "xterm",
        "xeyes",
        "swaync",
        "code",
        "firefox",
        "riverside",
        "vncviewer",
        "xfreerdp",
        "llama-server",
        "",
    ],
)
def test_other_names_are_not(name: str) -> None:
    assert not is_desktop([name])


@pytest.mark.parametrize(
    ("names", "command", "cgroup", "kind"),
    [
        (["ollama"], "ollama serve", "0::/system.slice/ollama.service", ProcessKind.MODEL_SERVER),
        (["llama-server"], "llama-server -m x.gguf", "", ProcessKind.MODEL_SERVER),
        (["VLLM::EngineCor", "VLLM::EngineCore"], "VLLM::EngineCore", "", ProcessKind.MODEL_SERVER),
        (["python3"], "python3 -m vllm.entrypoints.openai.api_server", "", ProcessKind.MODEL_SERVER),
        (["python3"], "/usr/bin/python3 /home/me/ComfyUI/main.py", "", ProcessKind.MODEL_SERVER),
        (["python3"], "python3 -m ipykernel_launcher -f k.json", "", ProcessKind.NOTEBOOK),
        (["jupyter-lab"], "python3 /usr/bin/jupyter-lab", "", ProcessKind.NOTEBOOK),
        (["postgres"], "postgres -D /data", "0::/system.slice/postgresql.service", ProcessKind.SERVICE),
        (
            ["firefox"],
            "firefox",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox-1.scope",
            ProcessKind.APPLICATION,
        ),
        (["python3"], "python3 train.py --data vllm_logs", "", ProcessKind.APPLICATION),
        (["gnome-shell"], "/usr/bin/gnome-shell", "", ProcessKind.DESKTOP),
    ],
)
def test_role(names: list[str], command: str, cgroup: str, kind: ProcessKind) -> None:
    assert role_of(names=names, command=command, cgroup=cgroup) is kind


def test_only_the_last_part_of_a_cgroup_tells_a_service() -> None:
    assert is_service("0::/user.slice/user@1000.service/app.slice/syncthing.service")
    assert not is_service("0::/user.slice/user@1000.service/app.slice/app-a.scope")
    assert not is_service("")
