"""scripts/tidy finds what it is there to find, and nothing else."""

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def tidy():
    loader = importlib.machinery.SourceFileLoader("tidy", str(Path(__file__).with_name("tidy")))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", loader))
    loader.exec_module(module)
    return module


def errors(tidy, root, files, compiler=None):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return tidy.check_tree(root, compiler).errors


def test_a_clean_tree_passes(tidy, tmp_path):
    files = {
        "include/penstock/a.hpp": "// A contract.\n#pragma once\n#include <string>\n",
        "src/base/log.hpp": "// A contract.\n#pragma once\nvoid abort();\n",
        "src/base/log.cpp": '#include "base/log.hpp"\n#include <spdlog/spdlog.h>\n// exit(1)\nint i = x.abort();\n',
        "src/fabric/net.cpp": '#include "base/log.hpp"\n#include <asio.hpp>\nconst char* s = "printf(";\n',
        "src/fabric/net_test.cpp": "void f() { _exit(0); printf(0); }\n",
        "src/base/CMakeLists.txt": "penstock_module(base SOURCES log.cpp)\n",
        "src/fabric/CMakeLists.txt": "penstock_module(fabric SOURCES net.cpp TESTS net_test.cpp)\n",
        "python/penstock/mesh/x.py": "from ..errors import A\n\n\ndef f():\n    from ..analysis import b\n",
        "python/penstock/analysis/x.py": "from .. import mesh\n",
        "sims/heat/main.cpp": "int main() { printf(0); }  // TODO(ann): colours\n",
        "sims/CMakeLists.txt": "add_executable(heat heat/main.cpp)\n",
    }
    assert errors(tidy, tmp_path, files) == []


def test_a_schema_that_changed_asks_for_another_version(tidy, tmp_path):
    versions = (
        "// Versions.\n#pragma once\n// schemas: wire/a.fbs = {}\ninline constexpr std::uint32_t a_protocol = 2;\n"
    )
    files = {
        "src/wire/versions.hpp": versions.format("0"),
        "src/wire/a.cpp": '#include "wire/versions.hpp"\n',
        "src/wire/CMakeLists.txt": "penstock_module(wire SOURCES a.cpp)\n",
        "src/wire/a.fbs": "table A { x:int; }  // a comment\n",
    }
    (error,) = errors(tidy, tmp_path, files)
    assert "raise a_protocol" in error
    files["src/wire/versions.hpp"] = versions.format(error.rpartition("= ")[2].partition("'")[0])
    files["src/wire/a.fbs"] = "table A {\n  x:int;  // another\n}\n"
    assert errors(tidy, tmp_path, files) == []
    files["src/wire/a.fbs"] = "table A { x:long; }\n"
    assert len(errors(tidy, tmp_path, files)) == 1


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("src/base/x.cpp", '#include "stream/stream.hpp"\n', "includes upward"),
        ("src/memory/x.cpp", '#include "model/box.hpp"\n', "includes sideways"),
        ("python/penstock/mesh/x.py", "from ..analysis.vtk import x\n", "mesh imports upward or sideways: analysis"),
        ("python/penstock/mesh/x.py", "from .. import _core, analysis\n", "mesh imports upward or sideways: analysis"),
        ("python/penstock/attic/x.py", "\n", "no place in"),
        ("src/attic/x.cpp", "\n", "no place in"),
        (
            "src/transport/shm/x.cpp",
            '#include "transport/tcp/reply.hpp"\n',
            "transport/shm includes upward or sideways",
        ),
        ("src/pool/keys/x.cpp", '#include "pool/store/x.hpp"\n', "pool/keys includes upward or sideways"),
        ("src/pool/client/x.cpp", '#include "pool/server/x.hpp"\n', "pool/client includes upward or sideways"),
        ("src/stream/protocol/x.cpp", '#include "stream/api/x.hpp"\n', "stream/protocol includes upward or sideways"),
        ("src/stream/insitu/x.cpp", '#include "stream/file/x.hpp"\n', "stream/insitu includes upward or sideways"),
        ("src/pool/x.cpp", '#include "transport/tcp/reply.hpp"\n', "only transport includes it"),
        ("src/directory/x.cpp", "#include <httplib.h>\n", "belongs to directory/etcd only"),
        ("include/penstock/x.hpp", '// A contract.\n#include "model/box.hpp"\n', "only public headers"),
        ("include/penstock/x.hpp", "#pragma once\n", "opens with a comment"),
        ("src/stream/x.cpp", "#include <asio/post.hpp>\n", "belongs to fabric only"),
        (
            "src/fabric/x.cpp",
            '#include "wire/control_generated.h"\n',
            "belongs to directory, pool, rpc, space, transport, wire only",
        ),
        ("src/base/x.cpp", "void f() { std::abort(); }\n", "abort() is banned"),
        ("src/base/x.cpp", "int f() { return printf(0); }\n", "printf() is banned"),
        ("src/base/x.cpp", "void f() { std::this_thread::sleep_for(1s); }\n", "sleep_for() is banned"),
        ("src/base/x_test.cpp", "void f() { usleep(1); }\n", "usleep() is banned"),
        ("src/base/x.cpp", "void f() { std::cout << 1; }\n", "std::cout is banned"),
        ("src/base/x.cpp", "// TODO: later\n", "TODO without an owner"),
        ("src/base/x.cpp", "#if 0\n#endif\n", "switched off"),
        ("src/base/x_test.cpp", "TEST(A, DISABLED_b) {}\n", "switched off"),
        ("src/base/lost.hpp", "#pragma once\n", "nobody includes"),
        ("src/base/CMakeLists.txt", "penstock_module(base SOURCES gone.cpp)\n", "gone.cpp is not there"),
        ("sims/lost.cpp", "int main() {}\n", "no CMakeLists.txt names"),
    ],
)
def test_it_finds(tidy, tmp_path, path, text, message):
    listed = Path(path).name if path.endswith(".cpp") and "lost" not in path else ""
    files = {str(Path(path).parent / "CMakeLists.txt"): f"penstock_module(x SOURCES {listed})\n", path: text}
    found = errors(tidy, tmp_path, files)
    assert len(found) == 1, found
    assert message in found[0]
    assert found[0].startswith(path + ":")


def test_long_files_warn(tidy, tmp_path):
    assert errors(tidy, tmp_path, {"python/penstock/x.py": "\n" * 800}) == []
    assert "800 lines" in tidy.check_tree(tmp_path).warnings[0]


def test_public_headers_compile_alone(tidy, tmp_path):
    header = "// A contract.\n#pragma once\ninline std::string f();\n"
    found = errors(tidy, tmp_path, {"include/penstock/x.hpp": header}, compiler="c++")
    assert "does not compile alone" in found[0]


def test_this_tree_is_tidy_enough_to_read(tidy):
    root = Path(__file__).resolve().parent.parent
    assert Path("scripts/tidy") in tidy.find_files(root)
    assert not any(part in (".git", ".venv") for path in tidy.find_files(root) for part in path.parts)
