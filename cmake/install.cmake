# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: headers, both libraries, the CMake package, dosa.pc and the
# command.

if(NOT TARGET dosa)
  return()
endif()
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dosa)

# The device interface is installed where the library has it.
set(left_out "")
if(NOT dosa_cuda_sources)
  set(left_out PATTERN "dosa_cuda.*" EXCLUDE)
endif()
install(DIRECTORY include/dosa DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" ${left_out})

# Two exports, so that users of the shared library need neither Highway's nor OpenMP's packages.
install(TARGETS dosa EXPORT dosa_shared DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS dosa_static EXPORT dosa_static DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT dosa_shared FILE dosaSharedTargets.cmake NAMESPACE dosa:: DESTINATION ${package_dir})
install(EXPORT dosa_static FILE dosaStaticTargets.cmake NAMESPACE dosa:: DESTINATION ${package_dir})

set(dosa_find_cuda "")
if(dosa_cuda_sources)
  set(dosa_find_cuda "find_dependency(CUDAToolkit)")
endif()
configure_package_config_file(cmake/dosaConfig.cmake.in dosaConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(dosaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dosaConfig.cmake ${PROJECT_BINARY_DIR}/dosaConfigVersion.cmake
        DESTINATION ${package_dir})

# The prefix in dosa.pc is relative to the file itself, so that the tree can be moved. What a
# static link needs besides is found by pkg-config --static.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}
           OUTPUT_VARIABLE pc_include)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}
           OUTPUT_VARIABLE pc_lib)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_up)
set(pc_private "-lstdc++ -lm")
foreach(library IN LISTS OpenMP_CXX_LIB_NAMES)
  string(PREPEND pc_private "-l${library} ")
endforeach()
if(dosa_cuda_sources)
  string(PREPEND pc_private "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt -ldl -lpthread ")
endif()
configure_file(cmake/dosa.pc.in dosa.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/dosa.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET dosa_command)
  install(TARGETS dosa_command)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
